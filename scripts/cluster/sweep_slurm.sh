#!/bin/bash
# A sweep as numbered rows of a SLURM array, without submitit: row I is cell I of the plan.
#
#   python -m scripts.sweep ... --dry_run       shows the rows, 0 to 11 here
#   sbatch scripts/cluster/sweep_slurm.sh
#
# Submit it again to go on: finished rows end at once. Any scheduler that numbers its tasks will do in the same way.
# An example to be adapted: it was written from the documentation of sbatch and has not run on a cluster.

#SBATCH --job-name=sizes
#SBATCH --array=0-11%4
#SBATCH --gres=gpu:1
#SBATCH --cpus-per-task=4
#SBATCH --time=10:00:00
#SBATCH --requeue
#SBATCH --output=runs/sizes-%A_%a.out

cd "$SLURM_SUBMIT_DIR" || exit 2
source .venv/bin/activate

# exec: SLURM's SIGTERM, sent before a task is ended, reaches the sweep, which passes it on to the run.
exec python -m scripts.sweep --config=configs/lra.py:task=listops --seeds=0:5 --out=runs/sizes \
    --grid='layer=rotrnn,lru; depth=2,4,6; config.optim.lr=0.001,0.003; real_state_size=64' \
    --index="$SLURM_ARRAY_TASK_ID"
