#!/usr/bin/env bash
# The text of the runs of small.py at L and at 8 L, held out and to choose by: evaluate.sh [RUNS]
set -euo pipefail
runs=${1:-runs/ladder}
common="--config.lengths=64,512 --config.protocols=same_token --config.last=16 --config.windows=2"
search=""
for scale in 4 6 8 12 16; do
  for coefficient in 0 0.05 0.1 0.15; do search+=",yarn:$scale:coefficient=$coefficient"; done
done
for run in "$runs"/*-s[0-9]*; do
  python eval_extrapolation.py --workdir="$run" $common --config.name=text --config.extensions=none,yarn:8
  python eval_extrapolation.py --workdir="$run" $common --config.name=choose --config.data.part=choose \
    --config.extensions=none,yarn:8 --config.window=False
done
# The search reads as many tokens to choose by as a rung trains on: 20 candidates in 60 rows of 512.
for run in "$runs"/mixture-rope-s*; do
  python eval_extrapolation.py --workdir="$run" --config.lengths=512 --config.protocols=same_token \
    --config.last=16 --config.windows=2 --config.documents=30 --config.name=search \
    --config.data.part=choose --config.extensions="none$search" --config.window=False
done
