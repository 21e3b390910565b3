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

# Refuses if something is mounted on one of the folders, or below it: what is there is not of this installer. A bind mount of the
# same filesystem is one that rm does not see.
refuse_mounted() {
  local folder real at
  for folder in "$@"; do
    if [ ! -d "$folder" ] || [ -L "$folder" ]; then
      continue
    fi
    real=$(cd -P "$folder" && pwd)
    while read -r _ _ _ _ at _; do
      printf -v at %b "$at"
      case $at/ in
        "$real"/*) refuse "$at is mounted, and $folder is to be removed; unmount it first" ;;
      esac
    done </proc/self/mountinfo
  done
}

# Removes folders with everything in them.
remove() {
  refuse_mounted "$@"
  rm -rf --one-file-system "$@"
}

# Removes what the lines name, last line first. A folder has a slash at its end, and stays if others use it.
remove_lines() {
  tac | while IFS= read -r path; do
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
  local of_record absent
  remove "$record.new" "$record.old"
  if [ ! -d "$record" ]; then
    return
  fi
  # kubeadm reset removes this file.
  [ ! -e /etc/kubernetes/kubelet.conf ] || refuse "the host is a node still; run kubeadm reset first"
  of_record=$(listed bundle)
  mapfile -t absent <<<"$(listed absent)"
  # Before anything changes.
  refuse_mounted "$record" "$of_record" "$of_record.part" "${absent[@]}"
  stop_units
  kernel_as_before
  swap_as_before
  # What containerd, kubelet and kubeadm kept in folders that were not there before.
  remove "${absent[@]}"
  listed placed | sed '/\/bin\/kubeadm$/d' | remove_lines
  systemctl daemon-reload
  remove "$of_record" "$of_record.part"
  listed folders | remove_lines
  # The agent runs kubeadm reset before each try. So kubeadm stays until everything else is gone.
  listed placed | remove_lines
  mv "$record" "$record.old"
  remove "$record.old"
}
