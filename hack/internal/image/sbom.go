package image

import (
	"debug/buildinfo"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/sluice-gitops/sluice/hack/internal/compile"
)

// unknown is what SPDX documents contain where nothing is claimed.
const unknown = "NOASSERTION"

// rootsModule is the module with the authorities of the image.
const rootsModule = "golang.org/x/crypto/x509roots/fallback"

// billOfMaterials returns the SBOM of a platform's image, as SPDX 2.3 in JSON. It lists the modules that the linker
// recorded in the binary, the version of Go, and the module of the authorities.
func billOfMaterials(source compile.Source, b Binary, digest v1.Hash) ([]byte, error) {
	info, err := buildinfo.ReadFile(b.File)
	if err != nil {
		return nil, fmt.Errorf("cannot read the modules of %s: %w", b.File, err)
	}
	d := &document{}
	image := d.add("sluice", source.Version, "CONTAINER")
	image.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: digest.Hex}}
	image.PackageExternalReferences[0].Locator = "pkg:oci/sluice@" + digest.String() + "?arch=" + b.Target.Arch
	image.PackageLicenseDeclared, image.PackageLicenseConcluded = "Apache-2.0", "Apache-2.0"
	d.relate(common.MakeDocElementID("", "DOCUMENT"), common.TypeRelationshipDescribe, image)
	standard := d.add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "LIBRARY")
	standard.PackageLicenseDeclared = "BSD-3-Clause"
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.add(m.Path, m.Version, "LIBRARY")
	}
	if version := moduleVersion(rootsModule); version != "" {
		d.add(rootsModule, version, "LIBRARY")
	}
	for _, p := range d.packages[1:] {
		d.relate(common.MakeDocElementID("", string(image.PackageSPDXIdentifier)),
			common.TypeRelationshipContains, p)
	}
	return encode(&spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName:      "sluice " + source.Version + " " + b.Target.String(),
		DocumentNamespace: project + "/spdx/" + digest.Hex,
		CreationInfo: &spdx.CreationInfo{Created: source.Date.Format(time.RFC3339), Creators: []common.Creator{
			{CreatorType: "Tool", Creator: "sluice-hack-image"},
			{CreatorType: "Organization", Creator: "sluice-gitops"},
		}},
		Packages: d.packages, Relationships: d.relationships,
	})
}

// moduleVersion returns the version of a module of this program, or "" if the program was built without modules.
func moduleVersion(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == path })
	if i < 0 {
		return ""
	}
	return info.Deps[i].Version
}

// document collects packages.
type document struct {
	packages      []*spdx.Package
	relationships []*spdx.Relationship
}

func (d *document) add(name, version, purpose string) *spdx.Package {
	address := "pkg:golang/" + name + "@" + strings.ReplaceAll(version, "+", "%2B")
	p := &spdx.Package{
		PackageName: name, PackageVersion: version, PrimaryPackagePurpose: purpose,
		PackageSPDXIdentifier:     common.ElementID(fmt.Sprintf("Package-%d", len(d.packages))),
		PackageDownloadLocation:   unknown,
		IsFilesAnalyzedTagPresent: true,
		PackageLicenseConcluded:   unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
		PackageExternalReferences: []*spdx.PackageExternalReference{{
			Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: address}},
	}
	d.packages = append(d.packages, p)
	return p
}

func (d *document) relate(from common.DocElementID, relationship string, to *spdx.Package) {
	d.relationships = append(d.relationships, &spdx.Relationship{RefA: from, Relationship: relationship,
		RefB: common.MakeDocElementID("", string(to.PackageSPDXIdentifier))})
}
