#!/usr/bin/env bash
# One command per process; each runs until it is stopped.
set -euo pipefail

# student-0, 1 GPUs
CUDA_VISIBLE_DEVICES=0 VLLM_SERVER_DEV_MODE=1 vllm serve /models/Qwen3-1.7B --host 127.0.0.1 --port 8000 --served-model-name student --enable-scale-out --logprobs-mode processed_logprobs --max-logprobs 64 --generation-config vllm --max-model-len 14337 --tensor-parallel-size 1 --gpu-memory-utilization 0.9 &

# student-1, 1 GPUs
CUDA_VISIBLE_DEVICES=1 VLLM_SERVER_DEV_MODE=1 vllm serve /models/Qwen3-1.7B --host 127.0.0.1 --port 8001 --served-model-name student --enable-scale-out --logprobs-mode processed_logprobs --max-logprobs 64 --generation-config vllm --max-model-len 14337 --tensor-parallel-size 1 --gpu-memory-utilization 0.9 &

# teacher-0, 2 GPUs
CUDA_VISIBLE_DEVICES=2,3 vllm serve /models/Qwen3-32B --host 127.0.0.1 --port 8010 --served-model-name teacher --enable-scale-out --logprobs-mode processed_logprobs --max-logprobs 64 --generation-config vllm --max-model-len 14337 --tensor-parallel-size 2 --gpu-memory-utilization 0.9 &

# learner, 4 GPUs
CUDA_VISIBLE_DEVICES=4,5,6,7 OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 4 -m lens_worker --student /models/Qwen3-1.7B --host 127.0.0.1 --port 7000 --token-file /run/lens/token --token-budget 16384 &

wait -n
