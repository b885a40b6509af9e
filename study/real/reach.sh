# The evaluations of the page on how far a model reads: bash study/real/reach.sh
# books.jsonl is that of evaluate.sh; docs/pretrained.md has the downloads of both models.
evaluate() {
  python eval_extrapolation.py --workdir=$1 --config.data.source=jsonl --config.data.path=books.jsonl --config.data.field=text \
    --config.documents=$3 --config.windows=1 --config.window=False --config.protocols=copies --config.name=$2 --config.lengths=$4 --config.extensions=$5
}

python scripts/adopt.py SmolLM2-135M-Instruct.Q4_1.gguf --workdir=runs/smollm2 --dtype=bfloat16
python scripts/adopt.py gemma-3-270m.gguf --workdir=runs/gemma3 --dtype=bfloat16
evaluate runs/smollm2 reach 12 8192 none,yarn:1.1,yarn:1.25,yarn:1.5,yarn:2,yarn:1.5:attention_factor=1,ntk:1.5
evaluate runs/smollm2 beyond-reach 12 12288 yarn:1.5,yarn:2
evaluate runs/gemma3 reach 4 32768 none,yarn:1.5
python -m study.real.publish runs/smollm2 runs/gemma3
