# One member of an all-reduce by PyTorch's gloo: rank, members, bytes of fp32, file to meet at.
import os, resource, sys, time

rank, members, size = (int(word) for word in sys.argv[1:4])
os.environ["GLOO_SOCKET_IFNAME"] = "lo"
import torch, torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + sys.argv[4], rank=rank, world_size=members)
vector = torch.zeros(size // 4)
dist.all_reduce(vector)


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


print("ready", flush=True)
for line in sys.stdin:
    dist.barrier()
    cpu, start = cpu_seconds(), time.perf_counter()
    for _ in range(int(line)):
        dist.all_reduce(vector)
    print(time.perf_counter() - start, cpu_seconds() - cpu, 0, flush=True)
