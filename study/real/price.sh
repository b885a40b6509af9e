# The evaluations of the page on the price of a factor: bash study/real/price.sh
# books.jsonl is that of evaluate.sh; docs/pretrained.md has the downloads of both models.
evaluate() {
  python eval_extrapolation.py --workdir=$1 --config.data.source=jsonl --config.data.path=books.jsonl --config.data.field=text --config.documents=${5:-8} --config.windows=1 \
    --config.window=False --config.protocols=same_token --config.last=512 --config.name=$2 --config.lengths=$3 --config.extensions=$4
}
of() { for s in ${@:2}; do printf ",yarn:$s$1,yarn:$s$1:attention_factor=1"; done; }

python scripts/adopt.py SmolLM2-135M-Instruct.Q4_1.gguf --workdir=runs/smollm2 --dtype=bfloat16
python scripts/adopt.py gemma-3-270m.gguf --workdir=runs/gemma3 --dtype=bfloat16
evaluate runs/smollm2 price 1024,2048,4096,8192 none,ntk:4$(of "" 2 4 8 16)
evaluate runs/smollm2 beyond 12288 yarn:2:attention_factor=query$(of "" 2)
evaluate runs/gemma3 price 512,2048,8192,32768 none,ntk:4$(of "" 4 8)$(of :layers=all 4)
evaluate runs/gemma3 beyond 32768,49152,65536 none,yarn:2,yarn:2:layers=all 4    # four books
python -m study.real.price runs/smollm2 runs/gemma3
