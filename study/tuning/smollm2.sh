#!/usr/bin/env bash
# The ladder on SmolLM2-135M-Instruct, YaRN by 2, rows of 512 tokens: smollm2.sh RUNS RUNG SEED RATE
# RUNS/smollm2 is the adopted model; data/tune.jsonl has the books to train on, data/books.jsonl
# those of study/real, of which the first four are read.
set -euo pipefail
runs=$1 rung=$2 seed=$3 rate=$4 run=$1/$2-s$3-rate=$4
if [ "$rung" != nothing ]; then
  python train.py --config=configs/ladder.py:"$rung" --workdir="$run" --config.init_from="$runs/smollm2" \
    --config.seed="$seed" --config.learning_rate="$rate" --config.train_length=512 --config.batch_size=2 \
    --config.steps=60 --config.warmup_steps=6 --config.log_every=10 --config.valid_every=60 \
    --config.save_every=30 --config.valid_batches=4 --config.data.source=jsonl \
    --config.data.path=data/tune.jsonl --config.data.valid_fraction=0.1
  extension=none # its own
else
  run=$runs/smollm2 extension=yarn:2
fi
python eval_extrapolation.py --workdir="$run" --config.name=ladder --config.data.source=jsonl \
  --config.data.path=data/books.jsonl --config.documents=4 --config.windows=1 --config.window=False \
  --config.protocols=copies,same_token --config.lengths=2048,12288 --config.last=256 \
  --config.extensions=$extension
