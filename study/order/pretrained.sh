# The evaluations of the page on pretrained models: bash study/order/pretrained.sh BOOKS RUNS
# BOOKS has the text of a book per line, {"text": ...}; docs/pretrained.md has the downloads of both models.
# DCA's chunk is 3/4 of the L of a run, so a model is adopted with several.
read_books() {
  python eval_extrapolation.py --workdir=$1 --config.data.source=jsonl --config.data.path=$books --config.documents=12 --config.windows=1 \
    --config.protocols=revised --config.lengths=512 --config.window=False --config.extensions=$2
}
books=$1
for model in smollm2=SmolLM2-135M-Instruct.Q4_1.gguf gemma3=gemma-3-270m.gguf; do
  name=${model%%=*} methods=none,self_extend:group=512:window=16,yarn:2 dca=dca dtype=float32
  # By default DCA would change three of Gemma's layers and leave all pairs as they are in the others.
  [ $name = gemma3 ] && methods=none dca=dca:layers=all dtype=bfloat16
  python scripts/adopt.py ${model#*=} --workdir=$2/$name --dtype=$dtype
  read_books $2/$name $methods
  for chunk in 96 112 128 192; do
    python scripts/adopt.py ${model#*=} --workdir=$2/$name-$chunk --dtype=$dtype --train_length=$chunk
    read_books $2/$name-$chunk $dca
  done
  python -m study.order.hidden $2/$name $books none
  python -m study.order.hidden $2/$name-128 $books $dca
done
python -m study.order.distinguish $books $2/distinguish.csv $2/smollm2@none $2/smollm2@yarn:2 $2/smollm2@yarn:8 && xz -c $2/distinguish.csv > study/order/rows/distinguish.csv.xz
python -m study.order.pretrained $2
