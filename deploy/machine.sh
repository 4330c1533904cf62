#!/usr/bin/env bash
# Installs what the tests need from the system, where it is missing: Chromium, PostgreSQL, Redis, OpenMP.
set -euo pipefail

packages=()
command -v chromium >/dev/null || packages+=(chromium fonts-liberation)
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || packages+=(postgresql)
command -v redis-server >/dev/null || packages+=(redis-server)
ldconfig -p 2>/dev/null | grep -q 'libgomp\.so\.1' || packages+=(libgomp1)
((${#packages[@]})) || exit 0

if ! command -v apt-get >/dev/null; then
  echo "Please install these with your system's package manager, then run this again: ${packages[*]}" >&2
  exit 1
fi
run=()
if ((EUID)); then run=(sudo); fi
echo "Installing from the system's packages: ${packages[*]}"
export DEBIAN_FRONTEND=noninteractive
"${run[@]}" apt-get update -qq
"${run[@]}" apt-get install -y -qq --no-install-recommends "${packages[@]}"
