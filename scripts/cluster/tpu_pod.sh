#!/bin/bash
# One run on all hosts of a Cloud TPU pod slice, e.g. v4-32: one process a host, started by gcloud.
# An example to be adapted. It has not been run on a TPU: what was tested is two processes on one machine.
#
#     scripts/cluster/tpu_pod.sh NAME ZONE --config=configs/lra.py:task=pathx,layer=rotrnn --workdir=runs/pathx
#
# Expects on every host a checkout in ~/linrec with `make setup ACCEL=tpu` done, and prepared data in ~/linrec-data:
#
#     gcloud compute tpus tpu-vm ssh NAME --zone=ZONE --worker=all --command='git clone URL ~/linrec &&
#         cd ~/linrec && make setup ACCEL=tpu && .venv/bin/python -m scripts.prepare_data pathx --data_dir=$HOME/linrec-data'
#
# Hosts share no disk: the first one (worker 0) has the folder of the run, and tells the others what it restores.
# Copy it from there, or put it on a mounted bucket, before the slice is deleted.

set -euo pipefail
name=${1:?the name of the TPU}
zone=${2:?its zone}
shift 2

# jax learns from the metadata of the slice who the processes are. printf quotes the arguments for the remote shell.
gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all \
    --command="cd ~/linrec && .venv/bin/python train.py --distributed --data_dir=\$HOME/linrec-data $(printf '%q ' "$@")"
