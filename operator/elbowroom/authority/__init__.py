"""The certificate authority that the operator keeps in a Secret, and the certificates of VMs and of the operator.

certificates.py   pure: keys and certificates, when to renew them
keeper.py         the Secrets they are kept in
"""
