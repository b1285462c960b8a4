package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/local"
	"refract.dev/internal/output"
)

// snapshotOptions are the flags of snapshot.
type snapshotOptions struct {
	cluster clusterFlags
	secrets bool
}

func newSnapshotCommand(s *streams) *cobra.Command {
	o := &snapshotOptions{}
	cmd := &cobra.Command{
		Use:   "snapshot DIR",
		Short: "Write the content of a hub to a folder",
		Long: `Write the content of a hub to a folder: the policies, the clusters, the objects with
a propagation label, their current placements, and the CustomResourceDefinitions of
their kinds. Other commands give the same results with this folder as with the hub,
and need no access to the hub.

The values of Secrets, and of their annotations that are not Refract's own, are
replaced by a placeholder, so that the folder can be kept with source code;
--secrets writes the real values. Files of objects that are no longer on the hub are
removed; files that snapshot did not write stay.`,
		Example: `  refract snapshot fleet`,
		Args:    oneName("folder"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args[0]) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.secrets, "secrets", false, "write the values of Secrets, too")
	o.cluster.addClusterFlags(cmd, "hub")
	return cmd
}

func (o *snapshotOptions) run(ctx context.Context, s *streams, dir string) error {
	contents, err := hubContents(ctx, &o.cluster)
	if err != nil {
		return err
	}
	objects := make([]map[string]any, len(contents.Objects))
	masked := 0
	for i, u := range contents.Objects {
		objects[i] = kept(u)
		if render.IsSecret(u) && !o.secrets {
			objects[i] = withoutValues(objects[i])
			masked++
		}
	}
	files, err := render.FilesOf(objects)
	if err != nil {
		return err
	}
	var done *render.Written
	err = s.whole(func() error {
		done, err = render.WriteDir(dir, "refract snapshot", files, true)
		return err
	})
	if err != nil {
		return explainOutput(err)
	}
	for _, name := range done.Removed {
		fmt.Fprintf(s.err, "removed %s\n", filepath.Join(dir, filepath.FromSlash(name)))
	}
	if masked > 0 {
		fmt.Fprintf(s.err, "%s without values; --secrets writes them\n", output.Count(masked, "Secret is", "Secrets are"))
	}
	fmt.Fprintf(s.err, "%s in %s: %d written, %d unchanged, %d removed\n",
		output.Count(len(files), "file", "files"), dir, len(done.Written), done.Unchanged, len(done.Removed))
	return nil
}

// kept returns the content of an object that a snapshot keeps. It omits metadata that changes often. It omits the
// status of most kinds, except for placements and for the references of override policies. kept does not modify u.
func kept(u *unstructured.Unstructured) map[string]any {
	object := maps.Clone(local.WithoutManagers(u.Object))
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, key := range []string{"resourceVersion", "selfLink"} {
			delete(metadata, key)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			annotations = maps.Clone(annotations)
			delete(annotations, corev1.LastAppliedConfigAnnotation) // It contains the whole object, which may be a Secret.
			if manifest.Understands(u.GroupVersionKind()) {
				delete(annotations, manifest.LocalConfig) // The hub acts on the object despite this annotation.
			}
			metadata["annotations"] = annotations
		}
		object["metadata"] = metadata
	}
	switch u.GetKind() {
	case "FederatedCluster", "Propagation", "ClusterPropagation":
	case corev1alpha1.KindOverridePolicy, corev1alpha1.KindClusterOverridePolicy:
		references, checked, err := unstructured.NestedFieldNoCopy(object, "status", "references")
		delete(object, "status")
		if err == nil && checked {
			object["status"] = map[string]any{"references": references}
		}
	default:
		delete(object, "status")
	}
	return object
}

// standIn replaces each value of a Secret in a snapshot.
const standIn = "left out of the snapshot"

// withoutValues returns a Secret in which all values are replaced. The values of most annotations are also replaced,
// because tools may store the whole object in an annotation. The Secret remains valid.
func withoutValues(secret map[string]any) map[string]any {
	none := func(string) bool { return false }
	secret = maps.Clone(secret)
	mask(secret, "data", base64.StdEncoding.EncodeToString([]byte(standIn)), none)
	mask(secret, "stringData", standIn, none)
	if metadata, ok := secret["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		mask(metadata, "annotations", standIn, refractReads)
		secret["metadata"] = metadata
	}
	return secret
}

// mask replaces all values of a map, except for the keys for which keep returns true. The map is a field of object.
// mask replaces the map in object by a changed copy, and does not modify the map itself.
func mask(object map[string]any, field, with string, keep func(key string) bool) {
	values, ok := object[field].(map[string]any)
	if !ok {
		return
	}
	values = maps.Clone(values)
	for key := range values {
		if !keep(key) {
			values[key] = with
		}
	}
	object[field] = values
}

// refractReads reports whether an annotation belongs to Refract or KubeAdmiral, by the domain of its key.
func refractReads(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	for _, prefix := range []string{corev1alpha1.Prefix, refractv1alpha1.Prefix} {
		ours := strings.TrimSuffix(prefix, "/")
		if domain == ours || strings.HasSuffix(domain, "."+ours) {
			return true
		}
	}
	return false
}
