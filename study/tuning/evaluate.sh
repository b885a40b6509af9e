#!/usr/bin/env bash
# The text of the runs of small.py at L and at 8 L, held out and to choose by: evaluate.sh [RUNS]
set -euo pipefail
runs=${1:-runs/ladder}
common="--config.lengths=64,512 --config.protocols=same_token --config.last=16 --config.windows=2"
for run in "$runs"/*-s[0-9]*; do
  python eval_extrapolation.py --workdir="$run" $common --config.name=text --config.extensions=none,yarn:8
  python eval_extrapolation.py --workdir="$run" $common --config.name=choose --config.data.part=choose \
    --config.extensions=none,yarn:8 --config.window=False
done
