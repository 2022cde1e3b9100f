# fork.py DEVICE: a child neither changes its parent's registered memory nor inherits its objects. It opens the device
# itself.
import os
import sys

import pyverbs.enums as e
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD


def region(text):
    mr = MR(PD(Context(name=sys.argv[1])), 4096, e.IBV_ACCESS_LOCAL_WRITE)
    mr.write(text, len(text))
    return mr


def has(mr, text):
    if mr.read(len(text), 0).decode() != text:
        raise Exception(f'{mr.read(len(text), 0)} instead of {text}')


mine = region('of the parent')
child = os.fork()
if child == 0:
    try:
        has(mine, 'of the parent')
        mine.write('of the child.', 13)
        own = region('another one')
        has(own, 'another one')
        has(mine, 'of the child.')
        os._exit(0)
    except BaseException as x:
        print('child:', x, flush=True)
    os._exit(1)
if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
    sys.exit(1)
has(mine, 'of the parent')
region('of the parent too')
print('parent and child have what they wrote')
