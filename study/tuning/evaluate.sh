#!/usr/bin/env bash
# The text of the runs of small.py at L and at 8 L, held out and to choose by: evaluate.sh [RUNS]
# Then a search on the rows of each run of `all`, and the best of it on its base.
set -euo pipefail
runs=${1:-runs/ladder}
text="--config.lengths=64,512 --config.protocols=same_token --config.last=16 --config.windows=2"
for run in "$runs"/*-s[0-9]*; do
  python eval_extrapolation.py --workdir="$run" $text --config.name=text --config.extensions=none,yarn:8
  python eval_extrapolation.py --workdir="$run" $text --config.name=choose --config.data.part=choose \
    --config.extensions=none,yarn:8 --config.window=False
done
for rung in "$runs"/ladder-all-s[0-9]-learning_rate=0.001-*; do
  seed=${rung##*-all-s} seed=${seed%%-*}
  [ -f "$runs/search_$seed.csv" ] || python -m study.tuning.search "$rung" "$runs/search_$seed.csv"
  found=$(tail -n +2 "$runs/search_$seed.csv" | sort -t, -k3g | head -1 | cut -d, -f2)
  python eval_extrapolation.py --workdir="$runs/mixture-rope-s$seed" $text --config.name=text-search \
    --config.window=False --config.extensions="$found"
  python eval_extrapolation.py --workdir="$runs/mixture-rope-s$seed" --config.data.source=variables \
    --config.name=variables-search --config.lengths=64,512 --config.protocols=answers,gap \
    --config.last=16 --config.window=False --config.extensions="$found"
done
