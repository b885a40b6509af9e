# All runs and tables of the page on the encodings of 2026: bash study/field/run.sh
# runs/budget is that of the page on order, ALiBi with five seeds; evaluate.sh says which files SmolLM2 needs. study/real/price.sh adopts runs/smollm2 and runs/gemma3.
python scripts/sweep.py --config=study/field/rates.py --workdir=runs/field_rates --workers=2
cp runs/field_rates/choices.csv study/field/rows/rates
python scripts/sweep.py --config=study/field/budget.py --workdir=runs/field --workers=2
python -m study.publish runs/field study/field/rows/budget held-out
python scripts/sweep.py --config=study/field/fope.py --workdir=runs/fope --workers=2
python scripts/sweep.py --config=study/field/mixtures.py --workdir=runs/fope --workers=2
cp runs/fope/choices.csv study/field/rows/fope && python -m study.publish runs/fope study/field/rows/fope
python -m study.field.full runs/field
python -m study.field.topk runs/field runs/budget
bash study/real/evaluate.sh && bash study/field/evaluate.sh
python scripts/prepare_data.py --config=configs/ordered.py:rope --config.data.far=64 --config.data.documents=1000 --tokens_out=runs/far_tokens
python -m study.field.fade runs/field runs/budget
python scripts/sweep.py --config=study/field/lazy.py --workdir=runs/lazy --workers=2
cp runs/lazy/choices.csv study/field/rows/lazy
python -m study.field.reach runs/lazy
python scripts/sweep.py --config=study/field/text.py --workdir=runs/field_text --workers=2
python -m study.publish runs/field_text study/field/rows/text
python scripts/sweep.py --config=study/field/items.py --workdir=runs/items --workers=2
for run in runs/items/*/; do    # at L, on rows drawn like training
  python eval_extrapolation.py --workdir=$run --config.name=at_L --config.data.part=choose \
    --config.lengths=64 --config.last=16 --config.protocols=answers --config.window=False
done
python -m study.publish runs/items study/field/rows/items
python -m study.field.list runs/smollm2 runs/gemma3
python -m study.tables && python -m study.field.draw
