"""The bill of materials (CycloneDX, JSON): each package that the artefacts hold, and its version.

Packages of PyPI have their licence. Those of Debian, in the container and in the live image, have it in the
image itself: the property `durability:licence` names the file.

Parts of a package, such as the OpenSSL within `cryptography`, are listed by the package itself, in the folder
`sboms` or `licenses` of its metadata, which the bundles keep. What lacks a licence there has it in the folder
`durability-licences` of each bundle.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from release import bundle
from release.sources import Sources

NAME = "durability"


def make(sources: Sources, bundled: Iterable[bundle.Component], debian: Iterable[str], out: Path) -> Path:
    """Write the bill to the directory `out`; the same packages of the same commit give the same bytes.
    `debian`: the packages of the images, as lines of `dpkg-query --show`."""
    found, lines = sorted(set(bundled)), sorted(set(debian))
    (own,) = (_component(one) for one in found if one.name == NAME)
    packages = [_component(one) for one in found if one.name != NAME]
    packages += [_of_debian(*line.split()) for line in lines if not line.startswith(f"{NAME}\t")]
    seal = " ".join([str(sources.committed_at_s), *map(str, found), *lines])
    bom = Bom(
        components=packages,
        metadata=BomMetaData(component=own, timestamp=datetime.fromtimestamp(sources.committed_at_s, UTC)),
        serial_number=uuid5(NAMESPACE_URL, seal),
    )
    bom.register_dependency(own, packages)
    document = json.loads(JsonV1Dot6(bom).output_as_string())
    path = out / f"{NAME}-{sources.version}.cdx.json"
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", "utf-8")
    return path


def _component(one: bundle.Component) -> Component:
    url = PackageURL(type="pypi", name=one.name.lower().replace("_", "-"), version=one.version)
    return Component(
        type=ComponentType.APPLICATION if one.name == NAME else ComponentType.LIBRARY,
        name=one.name,
        version=one.version,
        licenses=[LicenseFactory().make_from_string(one.licence)],
        purl=url,
        bom_ref=str(url),
    )


def _of_debian(name: str, version: str) -> Component:
    name = name.partition(":")[0]  # without the architecture
    url = PackageURL(type="deb", namespace="debian", name=name, version=version)
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        purl=url,
        bom_ref=str(url),
        properties=[Property(name=f"{NAME}:licence", value=f"/usr/share/doc/{name}/copyright")],
    )
