
# This script takes back what the other one did, as far as that came. kubeadm has reset the node before.
undo
say "nothing of the installation is left"
