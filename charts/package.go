package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
)

// writePackage writes the chart's archive, and manifests for each of the installations, into a folder. If a tag is
// given, the version of the chart must match it. If a digest is given, all image references contain it.
func writePackage(dir, tag, digest string, at time.Time) error {
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		return fmt.Errorf("loading the chart: %w", err)
	}
	if tag != "" && (c.Metadata.AppVersion != tag || "v"+c.Metadata.Version != tag) {
		return fmt.Errorf("charts/refract/Chart.yaml: want version %s and appVersion %s, as the tag says, got %s and %s: "+
			"write them there, run `make charts` and tag that commit",
			strings.TrimPrefix(tag, "v"), tag, c.Metadata.Version, c.Metadata.AppVersion)
	}
	if err := pin(c, digest); err != nil {
		return fmt.Errorf("writing the digest of the image into the chart: %w", err)
	}
	if _, err := pack(c, dir, at); err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}
	for installation := range installations {
		texts, err := manifestsFor(c, installation)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("# Refract %s, made from charts/refract with charts/%s/%s.yaml. Have its image where the cluster finds it, and name that here.\n",
			c.Metadata.AppVersion, valuesDir, installation)
		for _, name := range inOrder(texts) {
			text += "---\n" + texts[name]
		}
		if err := os.WriteFile(filepath.Join(dir, "install-"+installation+".yaml"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// noDigest is the text in values.yaml for an image without a digest.
const noDigest = "\n  digest: \"\"\n"

// pin sets the digest of the image in the chart. It changes both the text of values.yaml, which goes into the archive,
// and the parsed values, which the templates use.
func pin(c *chart.Chart, digest string) error {
	if digest == "" {
		return nil
	}
	if !isDigest.MatchString(digest) {
		return fmt.Errorf("want sha256:… of 64 digits, got %q", digest)
	}
	image, ok := c.Values["image"].(map[string]any)
	at := slices.IndexFunc(c.Raw, func(f *common.File) bool { return f.Name == chartutil.ValuesfileName })
	if !ok || at < 0 || bytes.Count(c.Raw[at].Data, []byte(noDigest)) != 1 {
		return fmt.Errorf("want one line %q in %s", strings.TrimSpace(noDigest), chartutil.ValuesfileName)
	}
	image["digest"] = digest
	c.Raw[at].Data = bytes.Replace(c.Raw[at].Data, []byte(noDigest), fmt.Appendf(nil, "\n  digest: %s\n", digest), 1)
	return nil
}

var isDigest = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// pack writes the chart's archive and returns its path. The archive depends only on the files and the time.
func pack(c *chart.Chart, dir string, at time.Time) (string, error) {
	c.ModTime, c.SchemaModTime = at, at
	for _, files := range [][]*common.File{c.Raw, c.Templates, c.Files} {
		slices.SortFunc(files, func(a, b *common.File) int { return strings.Compare(a.Name, b.Name) })
		for _, f := range files {
			f.ModTime = at
		}
	}
	return chartutil.Save(c, dir)
}

// inOrder returns the names of manifests in the order of their application: the namespace, the roles, the workloads, the
// monitoring.
func inOrder(texts map[string]string) []string {
	rank := func(name string) int {
		return slices.Index([]string{"namespace.yaml", "rbac", "install", "metrics"}, strings.SplitN(name, "/", 2)[0])
	}
	return slices.SortedFunc(maps.Keys(texts), func(a, b string) int {
		if rank(a) != rank(b) {
			return rank(a) - rank(b)
		}
		return strings.Compare(a, b)
	})
}
