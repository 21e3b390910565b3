
# This script makes the host ready for kubeadm. A second run repairs what differs, and changes nothing else.
image='%IMAGE%'
kubernetes='%KUBERNETES%'
architecture='%ARCHITECTURE%'
downloads='{{.BundleDownloadPath}}'
bundle=${downloads%/}/agent-forge/${image##*:}
sysctls=/etc/sysctl.d/99-agent-forge.conf
# A line of /etc/fstab that mounts swap.
swap_line='^[[:space:]]*[^#[:space:]][^[:space:]]*[[:space:]]+[^[:space:]]+[[:space:]]+swap([[:space:]]|$)'

check_host() {
  [ "$(id -u)" = 0 ] || refuse "only root can install"
  # imgpkg fetches the bundle, and kubeadm asks for the others.
  for tool in imgpkg %TOOLS%; do
    command -v "$tool" >/dev/null || refuse "$tool is missing; install it on the host"
  done
  [ "${bundle:0:1}" = / ] || refuse "the agent's download path $downloads has to begin with a slash"
}

# Prints the folders above a path that are not there, from the root down, with a slash at their end.
missing_above() {
  local above=${1%/*}
  if [ -n "$above" ] && [ ! -d "$above" ]; then
    missing_above "$above"
    echo "$above/"
  fi
}

# Says what is on the host, before anything is changed.
begin_record() {
  if [ -d "$record" ] && [ "$(listed bundle)" != "$bundle" ]; then
    say "another bundle is installed; it goes first"
    undo
  fi
  if [ -d "$record" ]; then
    return
  fi
  remove "$record.new"
  mkdir -p "$record.new"
  echo "$bundle" >"$record.new/bundle"
  missing_above "$bundle" >"$record.new/folders"
  for folder in /etc/cni /etc/kubernetes /opt/cni /run/containerd /var/lib/cni /var/lib/containerd /var/lib/etcd \
    /var/lib/kubelet /var/log/containers /var/log/pods; do
    [ -e "$folder" ] || echo "$folder"
  done >"$record.new/absent"
  for module in overlay br_netfilter; do
    [ -d "/sys/module/$module" ] || echo "$module"
  done >"$record.new/modules"
  tail -n +2 /proc/swaps | sed 's/[[:space:]].*//' >"$record.new/swaps"
  sync "$record.new"/*
  mv "$record.new" "$record"
}

# Whether a folder holds what its list of checksums says.
is_whole() { (cd "$1" && sha256sum --check --quiet --strict SHA256SUMS); }

fetch() {
  if [ -d "$bundle" ] && is_whole "$bundle"; then
    return
  fi
  remove "$bundle.part"
  mkdir -p "${bundle%/*}"
  imgpkg pull --image "$image" --output "$bundle.part"
  is_whole "$bundle.part" || refuse "$image does not hold what its SHA256SUMS says"
  remove "$bundle"
  mv "$bundle.part" "$bundle"
}

check_bundle() {
  local fact odd
  for fact in "kubernetes=$kubernetes" "architecture=$architecture"; do
    grep -qxF "$fact" "$bundle/BUNDLE" || refuse "$image is not for $fact"
  done
  odd=$(targets | grep -E '/(\.\.?)?(/|$)' || true)
  [ -z "$odd" ] || refuse "$image names $odd, which is no path of a file"
}

# Prints where the files of the bundle belong.
targets() { sed -n 's/^[0-9a-f]\{64\}  root\//\//p' "$bundle/SHA256SUMS"; }

# Says which files will be put where none is. What others put there is never overwritten.
record_placed() {
  local wants=/etc/systemd/system/multi-user.target.wants
  if [ -f "$record/placed" ]; then
    return
  fi
  { targets && printf '%s\n' "$wants/containerd.service" "$wants/kubelet.service"; } | while IFS= read -r path; do
    if [ -e "$path" ] || [ -L "$path" ]; then
      refuse "$path is on the host already, and this installer did not put it there; remove it first"
    fi
    missing_above "$path"
    echo "$path"
  done >"$record/placed.new"
  sync "$record/placed.new"
  mv "$record/placed.new" "$record/placed"
}

place() {
  targets | while IFS= read -r path; do
    case $path in
      */bin/*) mode=755 ;;
      *) mode=644 ;;
    esac
    if ! cmp -s "$bundle/root$path" "$path" || [ "$(stat -c %a "$path")" != "$mode" ]; then
      mkdir -p "${path%/*}"
      install -m "$mode" "$bundle/root$path" "$path"
    fi
  done
}

swap_off() {
  if [ -f /etc/fstab ] && grep -qE "$swap_line" /etc/fstab; then
    sed -i -E --follow-symlinks "s/$swap_line/#agent-forge# &/" /etc/fstab
  fi
  if [ -n "$(tail -n +2 /proc/swaps)" ]; then
    swapoff -a
  fi
}

kernel() {
  modprobe -a overlay br_netfilter
  if [ ! -f "$record/sysctls" ]; then
    sed -n 's/^\([a-z][^[:space:]=]*\)[[:space:]]*=.*/\1/p' "$sysctls" | while IFS= read -r key; do
      value=$(sysctl -n "$key")
      echo "$key=$value"
    done >"$record/sysctls.new"
    mv "$record/sysctls.new" "$record/sysctls"
  fi
  sysctl -q -p "$sysctls"
}

units() {
  systemctl daemon-reload
  # kubeadm starts kubelet when it has written its configuration.
  systemctl enable --quiet containerd kubelet
  systemctl start containerd
}

check_host
begin_record
fetch
check_bundle
record_placed
place
swap_off
kernel
units
say "Kubernetes $kubernetes is ready for kubeadm"
