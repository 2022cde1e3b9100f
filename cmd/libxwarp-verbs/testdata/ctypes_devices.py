"""Lists devices by libibverbs, which Python finds at run time."""
import ctypes
import ctypes.util

verbs = ctypes.CDLL(ctypes.util.find_library("ibverbs"))
verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
verbs.ibv_get_device_name.restype = ctypes.c_char_p
verbs.ibv_get_device_name.argtypes = [ctypes.c_void_p]
n = ctypes.c_int()
devices = verbs.ibv_get_device_list(ctypes.byref(n))
print("devices:", [verbs.ibv_get_device_name(devices[i]).decode() for i in range(n.value)])
