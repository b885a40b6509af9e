"""RoPE of the fair zoo after 2,400 steps reads two modules of source code in alternate blocks.

python scripts/sweep.py --config=study/field/text.py --workdir=runs/field_text --workers=2

Five seeds at the rate of study/text/sweep.py, with its data and splits.
"""

from study.text import sweep as fair


def get_config():
    rope = [("rope", "configs/rope.py", {})]
    config = fair.at_rates_of(fair.get_config(), fair.RESULTS, rope, seeds=5)
    evaluation = {
        "multiples": "1,4",
        "documents": 100,
        "protocols": "riffle",
        "extensions": "none,yarn,pi,self_extend",
        "window": False,
    }
    return config | {
        "fields": config["fields"] | {"steps": 2_400},
        "evaluation": evaluation,
    }
