"""Four tasks as measures of reach: RoPE trained on each at L = 64, with its usual extensions.

python scripts/sweep.py --config=study/tasks/sweep.py --workdir=runs/tasks --workers=2
for run in runs/tasks/*[0-9]; do    # the oracles: 600 more steps at 8 L
  python train.py --config=configs/finetune.py --workdir=$run-oracle --config.init_from=$run \\
      --config.extension.name=none --config.extension.scale=1 --config.data.far=1 \\
      --config.train_length=512 --config.batch_size=4 --config.learning_rate=1e-3 \\
      --config.warmup_steps=60 --config.steps=600
  python eval_extrapolation.py --workdir=$run-oracle --config.lengths=64,128,256,512 \\
      --config.last=16 --config.protocols=answers,gap,depth --config.extensions=none
done
python scripts/report.py runs/tasks/*task=count* --out=report

A task is admitted if its oracle reaches 80% of the way from chance to the ceiling. A run takes two
to nine minutes on one core. Documents have only a few questions each, so an oracle trained from
scratch at 8 L learns none of the tasks from as many tokens; it starts from L. The page has three
more tasks, which the laboratory no longer has.
"""

from posenc_jax.sweeping.grid import chain, product
from study.retrieval import sweep as variables

TASKS = "passkey needle mqar count".split()
STEPS = dict.fromkeys(TASKS, 1800) | {"needle": 5400, "mqar": 5400}


def get_config():
    tasks = [
        # More documents than rows, so that none repeats.
        {"data.task": task, "steps": steps, "data.documents": steps * 34}
        for task, steps in STEPS.items()
    ]
    config = variables.get_config()
    return config | {
        "grid": product(chain(tasks), [{"recipe": "configs/variables.py:rope"}]),
        "evaluation": config["evaluation"]
        | {"extensions": "none,yarn,logn", "protocols": "answers,gap,depth"},
    }
