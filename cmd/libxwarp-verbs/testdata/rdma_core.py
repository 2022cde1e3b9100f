# Runs the Python tests of rdma-core over the library: rdma_core.py FOLDER DEVICE ADDRESS [TEST...]. It prints a line
# per test: name, result, reason. FOLDER has the tests as in Debian's package, compressed or not.
#
# The tests read the address of a device from sysfs and connect queue pairs by ibv_modify_qp. Here the address is an
# argument, and connections use rdma_cm, as iWARP requires.
import gzip
import os
import shutil
import sys
import tempfile
import unittest

folder, device, address, wanted = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
place = tempfile.mkdtemp()
os.mkdir(place + '/tests')
foreign = ('test_mlx5', 'test_efa', 'test_cuda')  # tests of other drivers
for name in os.listdir(folder):
    if not name.startswith(foreign):
        source = gzip.open if name.endswith('.gz') else open
        with source(folder + '/' + name, 'rb') as s, open(place + '/tests/' + name.removesuffix('.gz'), 'wb') as d:
            shutil.copyfileobj(s, d)
sys.path[:0] = [place, place + '/tests']
sys.argv[1:] = ['--dev', device, '--gid', '0']

from args_parser import parser
parser.parse_args()
import tests.base as base
import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam


def get_ip_mac(self, dev, port, idx):
    self.args.append([dev, port, idx, address, None])


def expect(channel, kind):
    event = CMEvent(channel)
    if event.event_type != kind:
        raise Exception(f'{event.event_str()} instead of event {kind}')
    return event


def connect(active, passive, port):
    """Connects two queue pairs of this process. The answer has to live as long as they do."""
    there, here = CMEventChannel(), CMEventChannel()
    listener = CMID(creator=there, port_space=ce.RDMA_PS_TCP)
    listener.bind_addr(AddrInfo(src=address, src_service=str(port), port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE))
    listener.listen()
    client = CMID(creator=here, port_space=ce.RDMA_PS_TCP)
    client.resolve_addr(AddrInfo(src=address, dst=address, dst_service=str(port), port_space=ce.RDMA_PS_TCP))
    expect(here, ce.RDMA_CM_EVENT_ADDR_RESOLVED).ack_cm_event()
    client.resolve_route()
    expect(here, ce.RDMA_CM_EVENT_ROUTE_RESOLVED).ack_cm_event()
    client.connect(ConnParam(qp_num=active.qp_num))
    request = expect(there, ce.RDMA_CM_EVENT_CONNECT_REQUEST)
    server = CMID(creator=request, listen_id=listener)
    request.ack_cm_event()
    server.accept(ConnParam(qp_num=passive.qp_num))
    for channel in here, there:
        expect(channel, ce.RDMA_CM_EVENT_ESTABLISHED).ack_cm_event()
    return there, here, listener, client, server


waiting = {}
ports = iter(range(20000, 30000))


def to_rts(self):
    peer = waiting.pop(tuple(self.rqps_num), None)
    if peer is None:
        waiting[tuple(self.qps_num)] = self
    else:
        self.connections = [connect(a, p, next(ports)) for a, p in zip(peer.qps, self.qps)]


base.RDMATestCase._get_ip_mac = get_ip_mac
if os.environ.get('XWARP_STYLE') != 'roce':  # with roce they connect by ibv_modify_qp
    base.RCResources.to_rts = to_rts


class Lines(unittest.TestResult):
    def line(self, test, what, why=''):
        why = str(why).strip().splitlines()
        sys.stdout.write(f'{test.id()}\t{what}\t{why[-1] if why else ""}\n')
        sys.stdout.flush()

    def addSuccess(self, test): self.line(test, 'passed')
    def addSkip(self, test, reason): self.line(test, 'skipped', reason)
    def addFailure(self, test, err): self.line(test, 'failed', self._exc_info_to_string(err, test))
    def addError(self, test, err): self.line(test, 'failed', self._exc_info_to_string(err, test))


def flat(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from flat(t)
        elif not wanted or any(w in t.id() for w in wanted):
            yield t


names = [n[:-3] for n in sorted(os.listdir(place + '/tests')) if n.startswith('test_') and n.endswith('.py')]
try:
    unittest.TestSuite(flat(unittest.defaultTestLoader.loadTestsFromNames(['tests.' + n for n in names]))).run(Lines())
finally:
    shutil.rmtree(place)
