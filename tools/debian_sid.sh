#!/bin/sh
# Runs the tests on the Pythons and servers of Debian's development branch, which has the newest ones.
#
#     sudo sh tools/debian_sid.sh            in a root directory of its own, .debian-sid/, made by debootstrap (1 GB)
#     sh tools/debian_sid.sh inside          on this machine, which is a Debian sid already, for example a container
#
# Only the clone's files are copied into it, again in each run. Its mounts are in a namespace that ends with this script.
set -eu
cd "$(dirname "$0")/.."
SID=$PWD/.debian-sid
WORDS=${CELLS:-py3.14 py3.15}

install_packages() {
    export DEBIAN_FRONTEND=noninteractive
    # A mirror may be older than its own promise; the packages are signed in any case.
    apt-get -o Acquire::Check-Valid-Until=false update -qq
    apt-get install -y -qq --no-install-recommends ca-certificates gcc git libc6-dev make postgresql \
        python3.14 python3.14-venv python3.15 python3.15-venv redis-server >/dev/null || {
        # PostgreSQL cannot start its own service in a bare root; the tests only need its programs.
        ls /usr/lib/postgresql/*/bin/initdb /usr/bin/redis-server >/dev/null
    }
}

if [ "${1:-}" = inside ]; then
    install_packages
    # shellcheck disable=SC2086 # words
    exec python3.14 -m tools.matrix $WORDS
fi

if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
    echo "SKIPPED the tests on Debian sid: they need root and debootstrap (Debian: apt-get install debootstrap)"
    test -z "${CI:-}"
    exit
fi
if [ ! -e "$SID/.made" ]; then
    rm -rf "$SID"
    echo "making $SID, a few minutes ..."
    debootstrap --variant=minbase sid "$SID" ${MIRROR:+"$MIRROR"} >"$SID.log" 2>&1 || { tail -5 "$SID.log"; exit 1; }
    printf '#!/bin/sh\nexit 101\n' >"$SID/usr/sbin/policy-rc.d" # installs start no services
    chmod +x "$SID/usr/sbin/policy-rc.d"
    touch "$SID/.made"
fi
mkdir -p "$SID/project" "$SID/etc/ssl/certs"
find "$SID/project" -mindepth 1 -maxdepth 1 ! -name .venv-matrix -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null | tar -cf - -T - | tar -xf - -C "$SID/project"
cp /etc/resolv.conf /etc/hosts "$SID/etc/"
# Certificate authorities of a proxy, where there is one.
test ! -e /etc/ssl/certs/ca-certificates.crt || cp /etc/ssl/certs/ca-certificates.crt "$SID/etc/ssl/certs/own.crt"
if [ -e "${DJANGO_MAIN:-}" ]; then # outside of the root
    copy=/tmp/$(basename "$DJANGO_MAIN")
    rm -rf "${SID:?}$copy"
    cp -R "$DJANGO_MAIN" "$SID$copy"
    DJANGO_MAIN=$copy
fi
export SID
exec unshare --mount --fork sh -eu -c '
    for part in proc sys dev; do mount --rbind "/$part" "$SID/$part"; done
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CI="${CI:-}" CELLS="${CELLS:-}" ARGS="${ARGS:-}" \
        DJANGO_MAIN="${DJANGO_MAIN:-}" PIP_CERT=/etc/ssl/certs/own.crt chroot "$SID" sh /project/tools/debian_sid.sh inside'
