# The commands of the page on attention sinks: bash study/real/sinks.sh
small() {
  python train.py --config=configs/$1.py --workdir=runs/$1-s$2 --config.data.source=stdlib --config.seed=$2    # 3 minutes on two cores
  python scripts/diagnose.py runs/$1-s$2@none@128 --documents=32
  python eval_extrapolation.py --workdir=runs/$1-s$2 --config.name=baselines --config.multiples=1,8 --config.last=32 --config.windows=2 --config.documents=50 \
    --config.protocols=same_token --config.extensions=$3
}
for seed in 0 1 2; do small rope $seed none,streaming; done
small alibi 0 none,streaming
small nope 0 none    # streaming does not fit it

make demo && python scripts/diagnose.py runs/demo/variables-rope@none@64 --documents=32
python scripts/diagnose.py runs/smollm2@none@256 --path='books/*.txt'    # docs/pretrained.md
python eval_extrapolation.py --workdir=runs/smollm2 --config.name=small --config.data.source=text --config.data.path='books/*.txt' --config.lengths=128,512 \
  --config.last=32 --config.windows=1 --config.documents=12 --config.protocols=same_token --config.extensions=none,window:size=128,streaming:window=124 --config.window=False
python scripts/compare.py runs/smollm2@window:size=128@512 runs/smollm2@none@128 --evaluation=small
