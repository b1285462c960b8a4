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
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/output"
	"refract.dev/local"
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
		Short: "Write what a hub holds to a folder",
		Long: `Write what a hub holds to a folder: the policies, the clusters, the objects that
ask to be propagated, where they are now, and the CustomResourceDefinitions of
their kinds. Every other command answers from such a folder as it does from the
hub itself, with no hub at hand.

The values of Secrets, and those of their annotations that are not Refract's own,
are replaced by a stand-in, so that the folder can be kept with source code;
--secrets writes them as they are. Files of objects that are no longer on the hub
are removed, and all that snapshot did not write stays.`,
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

// kept is what matters of an object of the hub: not what changes all the time, and
// status only where it says where things are, or what may travel. It does not modify u.
func kept(u *unstructured.Unstructured) map[string]any {
	object := maps.Clone(local.WithoutManagers(u.Object))
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, key := range []string{"resourceVersion", "selfLink"} {
			delete(metadata, key)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			annotations = maps.Clone(annotations)
			delete(annotations, corev1.LastAppliedConfigAnnotation) // It repeats all, Secrets included.
			if manifest.Understands(u.GroupVersionKind()) {
				delete(annotations, manifest.LocalConfig) // The hub acts on it all the same.
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

// standIn is what a snapshot has in the place of a value.
const standIn = "left out of the snapshot"

// withoutValues returns a Secret with stand-ins for its values, and for those of
// annotations: tools keep copies of the whole object there. It stays valid.
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

// mask replaces the values of a map that is in a field of object, but for those of
// the keys to keep. It modifies object, and not the map.
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

// refractReads reports whether the key of an annotation is in a domain of ours.
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
