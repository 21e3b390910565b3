#!/bin/bash
# Plays each program that would change the host or ask the network, in a host of plain files. Its name says which one.
# `/stub/fails` says which call fails, and whether its effect is there: `before 3`, `after 3`.
set -euo pipefail
echo "${0##*/} $*" >>/stub/calls
call=$(wc -l </stub/calls)
fail_if() {
  if [ "$(cat /stub/fails)" = "$1 $call" ]; then
    exit 1
  fi
}
key() { echo "/proc/sys/${1//.//}"; }
bridge=/proc/sys/net/bridge

fail_if before
case "${0##*/} $*" in
  "imgpkg pull --image "*" --output "*)
    [ ! -e "$5" ] || exit 7
    cp -R "/stub/images/${3##*:}" "$5"
    ;;
  "modprobe -a overlay br_netfilter")
    mkdir -p /sys/module/overlay /sys/module/br_netfilter "$bridge"
    for name in iptables ip6tables; do
      [ -e "$bridge/bridge-nf-call-$name" ] || echo 0 >"$bridge/bridge-nf-call-$name"
    done
    ;;
  "modprobe -r "*)
    rmdir "/sys/module/$2"
    [ "$2" != br_netfilter ] || rm -r "$bridge"
    ;;
  "sysctl -n "*) cat "$(key "$2")" ;;
  "sysctl -q -w "*=*)
    [ -e "$(key "${3%%=*}")" ]
    echo "${3#*=}" >"$(key "${3%%=*}")"
    ;;
  "sysctl -q -p "*)
    while read -r name equals value; do
      [ "$equals" = = ] && [ -e "$(key "$name")" ]
      echo "$value" >"$(key "$name")"
    done <"$3"
    ;;
  "swapoff -a") sed -i 2,\$d /proc/swaps ;;
  "swapon "*) grep "^$1 " /stub/swaps >>/proc/swaps ;;
  "systemctl daemon-reload") (cd /etc/systemd/system && echo *.service) >/stub/loaded ;;
  "systemctl enable --quiet containerd kubelet")
    for unit in containerd kubelet; do
      grep -q "$unit.service" /stub/loaded
      link=/etc/systemd/system/multi-user.target.wants/$unit.service
      [ -L "$link" ] || ln -s "/etc/systemd/system/$unit.service" "$link"
    done
    ;;
  "systemctl disable --now --quiet "*)
    [ -e "/etc/systemd/system/$4.service" ]
    rm -f "/etc/systemd/system/multi-user.target.wants/$4.service" "/run/$4.pid"
    ;;
  "systemctl start containerd")
    grep -q containerd.service /stub/loaded
    [ -x /usr/bin/containerd ] && [ -x /usr/bin/runc ]
    mkdir -p /run/containerd /var/lib/containerd/layers
    [ -e /run/containerd.pid ] || echo 1 >/run/containerd.pid
    ;;
  *)
    echo "nobody plays: ${0##*/} $*" >&2
    exit 9
    ;;
esac
fail_if after
