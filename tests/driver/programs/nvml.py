"""NVML through cuda.bindings: what the virtual GPU says about itself agrees with the driver."""

from cuda.bindings import driver, nvml

nvml.init_v2()
print("count", nvml.device_get_count_v2(), "cuda", nvml.system_get_cuda_driver_version())
handle = nvml.device_get_handle_by_index_v2(0)
assert driver.cuInit(0)[0] == 0 and driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])[0] == 0
name = driver.cuDeviceGetName(96, 0)[1].split(b"\0")[0].decode()
print(name, nvml.device_get_name(handle) == name)
number = driver.cuDeviceGetUuid(0)[1].bytes.hex()
uuid = nvml.device_get_uuid(handle)
print("uuid", uuid.startswith("GPU-"), uuid.removeprefix("GPU-").replace("-", "") == number)
assert nvml.device_get_handle_by_uuid(uuid) == handle == nvml.device_get_handle_by_uuid(uuid.removeprefix("GPU-"))
total = driver.cuDeviceTotalMem(0)[1]
result, address = driver.cuMemAlloc(1000)
memory = nvml.device_get_memory_info_v2(handle)
print("memory", memory.total == total, memory.used, memory.free == total - 1000)
print("capability", nvml.device_get_cuda_compute_capability(handle), "MHz", nvml.device_get_max_clock_info(handle, 1))
try:
    nvml.device_get_power_usage(handle)
except nvml.NotSupportedError:
    print("power: not supported")
nvml.shutdown()
