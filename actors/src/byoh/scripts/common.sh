# Both scripts begin with this text. The agent of BYOH runs each as root, as one argument of `/bin/bash -c`.
set -euo pipefail
umask 022
# A service, and sudo on RHEL, may have a shorter list than a login.
PATH=${PATH:-}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH LC_ALL=C

# What was on the host before, and what was put there. It is complete or absent, because it is made elsewhere and renamed.
record=/var/lib/agent-forge-installer

say() { echo "agent-forge: $*"; }

refuse() {
  say "$*" >&2
  exit 1
}

# Prints the record's list of that name. A half install may lack it.
listed() {
  if [ -f "$record/$1" ]; then
    cat "$record/$1"
  fi
}

# Removes what the list names, last line first. A folder has a slash at its end, and stays if others use it.
remove_listed() {
  listed "$1" | tac | while IFS= read -r path; do
    case $path in
      */) [ ! -d "$path" ] || rmdir --ignore-fail-on-non-empty "$path" ;;
      *) rm -f "$path" ;;
    esac
  done
}

stop_units() {
  local unit file
  for unit in kubelet containerd; do
    file=/etc/systemd/system/$unit.service
    if [ -e "$file" ] && [ -f "$record/placed" ] && grep -qxF "$file" "$record/placed"; then
      systemctl disable --now --quiet "$unit"
    fi
  done
}

# What the kernel refuses now is as before after the next boot.
kernel_as_before() {
  listed sysctls | while IFS= read -r setting; do
    sysctl -q -w "$setting" || say "$setting comes back with the next boot"
  done
  listed modules | tac | while IFS= read -r module; do
    [ ! -d "/sys/module/$module" ] || modprobe -r "$module" || say "the module $module stays until the next boot"
  done
}

swap_as_before() {
  if [ -f /etc/fstab ] && grep -q '^#agent-forge# ' /etc/fstab; then
    sed -i --follow-symlinks 's/^#agent-forge# //' /etc/fstab
  fi
  listed swaps | while IFS= read -r swap; do
    grep -qF "$swap " /proc/swaps || swapon "$swap" || say "swap on $swap cannot be used now"
  done
}

# Brings the host back to what the record says. A second call finds nothing to do.
undo() {
  local of_record
  rm -rf "$record.new" "$record.old"
  if [ ! -d "$record" ]; then
    return
  fi
  # kubeadm reset removes this file.
  [ ! -e /etc/kubernetes/kubelet.conf ] || refuse "the host is a node still; run kubeadm reset first"
  stop_units
  kernel_as_before
  swap_as_before
  # What containerd, kubelet and kubeadm kept in folders that were not there before. Nothing that is mounted below is touched.
  listed absent | while IFS= read -r folder; do
    rm -rf --one-file-system "$folder"
  done
  remove_listed placed
  systemctl daemon-reload
  of_record=$(listed bundle)
  rm -rf "$of_record" "$of_record.part"
  remove_listed folders
  mv "$record" "$record.old"
  rm -rf "$record.old"
}
