"""What the operator can do with a VM, whatever runs it.

interface.py   the Protocol and its values: all that the rest of the operator knows of a VM
qemu.py        VMs in pods of our own runner
judgement.py   pure: from what two runners say to where the guest is
receiver.py    pure: from a VM's pod to its receiver's
client.py      calls to runners, and the one place where they are retried
"""
