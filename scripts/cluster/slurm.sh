#!/bin/bash
# One run on several nodes of a SLURM cluster: one process a node, which uses all GPUs of that node.
# An example to be adapted. It has not been run on a cluster: what was tested is two processes on one machine.
#
#     sbatch scripts/cluster/slurm.sh --config=configs/lra.py:task=pathx,layer=rotrnn,seeds=0:4 --workdir=runs/pathx
#
# Started again after the time limit, it goes on from the newest checkpoint; only the first process reads and writes the
# folder of the run, so that folder needs to be seen by its node alone. The prepared data must be seen by every node.
# The batch divides among all devices; to share otherwise, e.g. four seeds among four nodes: --config.mesh.seeds=4

#SBATCH --job-name=linrec
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=32
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --output=linrec-%j.log

set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?run me with sbatch}"

# srun starts one process a node, and jax reads from SLURM's variables who they are and where the first one listens.
srun --kill-on-bad-exit=1 .venv/bin/python train.py --distributed --data_dir="${LINREC_DATA:?the folder of prepared data}" "$@"
