#!/bin/sh
# Run by the Dockerfile: all files of the image `service`, in /files. `application` is /opt/sparklag,
# `base` what it needs of the base image: the interpreter, and the libraries that it and the packages
# are linked to.
set -eu
base=/files/base application=/files/application
environment=/opt/sparklag
python=$(realpath $environment/bin/python)
stdlib=$($python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
mkdir -p $base/etc $base/tmp $base/var/lib/sparklag $base/var/lib/dpkg/status.d $application/opt
chmod 1777 $base/tmp

# Where /lib is a link to /usr/lib.
for link in /lib /lib64; do
    [ ! -L $link ] || { mkdir -p "$base$(realpath $link)" && cp -a $link $base/; }
done
tar -cf - --exclude=__pycache__ --exclude='*/site-packages' --exclude='*/dist-packages' \
    --exclude='*/test' --exclude='*/tests' --exclude='*/idlelib' --exclude='*/tkinter' \
    --exclude='*/turtledemo' --exclude='*/ensurepip' --exclude='*/lib2to3' --exclude='*/pydoc_data' \
    --exclude='*/config-3*' --exclude='_tkinter*' --exclude=fetch_macholib \
    -C / "${python#/}" "${stdlib#/}" | tar -xf - -C $base
PYTHONHASHSEED=0 $python -m compileall -q --invalidation-mode unchecked-hash -s $base -p / "$base$stdlib"

find "$python" $environment "$base$stdlib" -type f \( -name '*.so' -o -name '*.so.*' -o -path "$python" \) \
    -exec ldd {} + >/files/linked
! grep 'not found' /files/linked || exit 1
awk '$2 == "=>" { print $3 } $2 ~ /^\(/ && $1 ~ /^\// { print $1 }' /files/linked |
    grep -v "^$environment/" | sort -u >/files/libraries
xargs cp -L --parents -t $base </files/libraries
cp -L --parents /etc/ld.so.cache /etc/os-release /etc/ssl/certs/ca-certificates.crt $base
# Where scanners of vulnerabilities look for the packages of an image without dpkg.
sed 's|.*/|*/|' /files/libraries | xargs dpkg-query -S | sed 's|: /.*||' | sort -u |
    while read -r package; do dpkg-query -s "$package" >"$base/var/lib/dpkg/status.d/${package%:*}"; done
printf 'hosts: files dns\n' >$base/etc/nsswitch.conf
printf '%s:/sbin/nologin\n' root:x:0:0::/ sparklag:x:10001:10001::/nonexistent >$base/etc/passwd
printf '%s:\n' root:x:0 sparklag:x:10001 >$base/etc/group

mv $environment $application/opt/
# No commit changes the base, so its layer stays the same for all of them.
find $base -exec touch -h -d @0 {} +
touch -d "@$SOURCE_DATE_EPOCH" $application/opt
