import os, socket, struct, time
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
for seq in range(8):
    get = struct.pack("=IHHII", 16, 5 << 10 | 1, 0x301, seq, 0)
    pieces = [get[:5], get[5:]]
    n = [ # netlink(7): the kernel is the default
        lambda: s.sendto(get, (0, 0)), lambda: s.sendmsg(pieces, [], 0, (0, 0)), lambda: s.send(get),
        lambda: s.sendmsg(pieces), lambda: os.write(s.fileno(), get), lambda: os.writev(s.fileno(), pieces),
    ][seq % 6]()
    assert n == 16
time.sleep(0.2)
ended = set()
while len(ended) < 8:
    b = s.recv(65536)
    while b:
        n, kind, flags, seq, pid = struct.unpack("=IHHII", b[:16])
        assert pid == s.getsockname()[0] and flags & 2, (pid, flags)
        if kind == 3:
            ended.add(seq)
        else:
            assert b"xwarp_eth0\0" in b[:n]
        b = b[n + 3 & ~3:]
try:
    s.sendto(b"x" * 5000, (0, 0))
    print("a long request was sent")
except OSError as e:
    print(e.strerror)
s.close()
r = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
other = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)
other.bind((0, 0))
r20 = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 20)
r20.connect(other.getsockname()) # not to the kernel
r20.send(b"between sockets")
assert other.recv(100) == b"between sockets"
r.sendto(struct.pack("=IHHIIBBHiII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0, 0), (0, 0))
print(b"eth0\0" in r.recv(65536))
