"""Ask a model in this one process; runs in the serving image, from standard input.

The last line printed is one JSON object: text, token_ids, logprobs.
"""

import json
import os
import sys

os.environ.update(
    {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "TORCH_COMPILE_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
)

from vllm import LLM, SamplingParams

request = json.loads(sys.argv[1])
engine = LLM(request["model"], dtype="float32", max_model_len=512, enforce_eager=True)
sampling = SamplingParams(temperature=0, max_tokens=request["tokens"], logprobs=0)
messages = [{"role": "user", "content": request["question"]}]
(output,) = engine.chat(messages, sampling)[0].outputs
ids = list(output.token_ids)
logprobs = [step[token].logprob for step, token in zip(output.logprobs, ids, strict=True)]
print(json.dumps({"text": output.text, "token_ids": ids, "logprobs": logprobs}))
