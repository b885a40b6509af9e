#!/usr/bin/env bash
# The ladder on SmolLM2-135M-Instruct, YaRN by 2, 30 rows of 512 tokens.
#   smollm2.sh train RUNS RUNG SEED RATE    from RUNS/smollm2, the adopted model
#   smollm2.sh read RUN [EXTENSION]         none: the run's own
# data/tune.jsonl has the books to train on, data/books.jsonl those of study/real, of which the first
# four are read.
set -euo pipefail
train() {
  local runs=$1 rung=$2 seed=$3 rate=$4
  python train.py --config=configs/ladder.py:"$rung" --workdir="$runs/$rung-s$seed-rate=$rate" \
    --config.init_from="$runs/smollm2" --config.seed="$seed" --config.learning_rate="$rate" \
    --config.train_length=512 --config.batch_size=1 --config.steps=30 --config.warmup_steps=3 \
    --config.log_every=1 --config.valid_every=30 --config.save_every=30 --config.valid_batches=4 \
    --config.data.source=jsonl --config.data.path=data/tune.jsonl --config.data.valid_fraction=0.1
}
read_books() {
  python eval_extrapolation.py --workdir="$1" --config.name=ladder --config.data.source=jsonl \
    --config.data.path=data/books.jsonl --config.documents=4 --config.windows=1 \
    --config.window=False --config.protocols=copies,same_token --config.lengths=2048,12288 \
    --config.last=256 --config.extensions="${2:-none}"
}
case $1 in
  train) train "${@:2}" ;;
  read) read_books "${@:2}" ;;
esac
