"""The trace of a worker on another machine: in step 4 a copy comes between two kernels."""

import json

STEPS = {3: ["gemm", "gelu", "gemm"], 4: ["gemm", "copy", "gelu", "gemm"]}


def write_trace(path):
    events, number = [], 0
    for step, kernels in STEPS.items():
        place = {"ph": "X", "pid": 1, "tid": 1}
        name, ts = f"ProfilerStep#{step}", 1000 * step
        events.append({**place, "cat": "user_annotation", "name": name, "ts": ts, "dur": 990})
        for kernel in kernels:
            number, ts = number + 1, ts + 10
            call, args = "hipLaunchKernel", {"correlation": number}
            events += [
                {**place, "cat": "cpu_op", "name": f"aten::{kernel}", "ts": ts, "dur": 5},
                {**place, "cat": "cuda_runtime", "name": call, "ts": ts, "dur": 2, "args": args},
                {**place, "cat": "kernel", "name": kernel, "ts": ts + 5, "dur": 4, "args": args},
            ]
    device = {"id": 0, "name": "AMD Instinct MI300X"}
    path.write_text(json.dumps({"deviceProperties": [device], "traceEvents": events}))
    return path
