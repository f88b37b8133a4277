#!/bin/bash
# A sweep over the hosts of a Cloud TPU pod slice, each host by itself: host H of K takes rows H, H + K, H + 2K, ...
#
#   gcloud compute tpus tpu-vm ssh NAME --zone=ZONE --worker=all \
#       --command='cd linrec && bash scripts/cluster/sweep_tpu_pod.sh 4 12'      4 hosts, 12 rows
#
# Each host needs the checkout, .venv (make setup ACCEL=tpu) and the data; its runs stay on its own disk. The same
# command goes on where it stopped. An example to be adapted: it has not run on a TPU.

HOSTS=$1 ROWS=$2

# Without these every process of a slice waits for those of all other hosts. A v4 host has 2 x 2 chips.
export TPU_PROCESS_BOUNDS=1,1,1 TPU_CHIPS_PER_PROCESS_BOUNDS=2,2,1 TPU_VISIBLE_DEVICES=0,1,2,3
HOST=$(curl -s -H 'Metadata-Flavor: Google' \
    http://metadata.google.internal/computeMetadata/v1/instance/attributes/agent-worker-number)

source .venv/bin/activate
for ((row = HOST; row < ROWS; row += HOSTS)); do
    python -m scripts.sweep --config=configs/lra.py:task=listops --seeds=0:5 --out=runs/sizes \
        --grid='layer=rotrnn,lru; depth=2,4,6; config.optim.lr=0.001,0.003; real_state_size=64' --index="$row"
done
