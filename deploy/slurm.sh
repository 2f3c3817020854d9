#!/usr/bin/env bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --job-name=lens
# The addresses in the configuration must name the two nodes: servers on the first, the worker on the second.
set -euo pipefail
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")

# student-0, 1 GPUs
srun --overlap --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" env CUDA_VISIBLE_DEVICES=0 VLLM_SERVER_DEV_MODE=1 vllm serve /models/Qwen3-1.7B --host node-1 --port 8000 --served-model-name student --enable-scale-out --logprobs-mode processed_logprobs --max-logprobs 64 --generation-config vllm --max-model-len 14337 --tensor-parallel-size 1 --gpu-memory-utilization 0.9 &

# student-1, 1 GPUs
srun --overlap --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" env CUDA_VISIBLE_DEVICES=1 VLLM_SERVER_DEV_MODE=1 vllm serve /models/Qwen3-1.7B --host node-1 --port 8001 --served-model-name student --enable-scale-out --logprobs-mode processed_logprobs --max-logprobs 64 --generation-config vllm --max-model-len 14337 --tensor-parallel-size 1 --gpu-memory-utilization 0.9 &

# student-2, 1 GPUs
srun --overlap --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" env CUDA_VISIBLE_DEVICES=2 VLLM_SERVER_DEV_MODE=1 vllm serve /models/Qwen3-1.7B --host node-1 --port 8002 --served-model-name student --enable-scale-out --logprobs-mode processed_logprobs --max-logprobs 64 --generation-config vllm --max-model-len 14337 --tensor-parallel-size 1 --gpu-memory-utilization 0.9 &

# student-3, 1 GPUs
srun --overlap --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" env CUDA_VISIBLE_DEVICES=3 VLLM_SERVER_DEV_MODE=1 vllm serve /models/Qwen3-1.7B --host node-1 --port 8003 --served-model-name student --enable-scale-out --logprobs-mode processed_logprobs --max-logprobs 64 --generation-config vllm --max-model-len 14337 --tensor-parallel-size 1 --gpu-memory-utilization 0.9 &

# teacher-0, 4 GPUs
srun --overlap --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" env CUDA_VISIBLE_DEVICES=4,5,6,7 vllm serve /models/Qwen3-32B --host node-1 --port 8010 --served-model-name teacher --enable-scale-out --logprobs-mode processed_logprobs --max-logprobs 64 --generation-config vllm --max-model-len 14337 --tensor-parallel-size 4 --gpu-memory-utilization 0.9 &

# learner, 8 GPUs
srun --overlap --nodes=1 --ntasks=1 --nodelist="${nodes[1]}" env CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 8 -m lens_worker --student /models/Qwen3-1.7B --teacher /models/Qwen3-32B --host node-2 --port 7000 --token-file /shared/lens/token --token-budget 16384 &

until lens engine check "$1"; do sleep 20; done
lens train "$1"
kill $(jobs -p)
