package cli

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"path/filepath"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/internal/render"
)

// snapshotOptions are the flags of snapshot.
type snapshotOptions struct {
	hub     string
	secrets bool
}

func newSnapshotCommand(s *streams) *cobra.Command {
	o := &snapshotOptions{}
	cmd := &cobra.Command{
		Use:   "snapshot DIR --hub-kubeconfig FILE",
		Short: "Write what a hub holds to a folder",
		Long: `Write what a hub holds to a folder: the policies, the clusters, the objects that
ask to be propagated, where they are now, and the CustomResourceDefinitions of
their kinds. Every other command answers from such a folder as it does from the
hub itself, with no hub at hand.

The values of Secrets are replaced by a stand-in, so that the folder
can be kept with source code; --secrets writes them as they are. Files of objects
that are no longer on the hub are removed, and all that snapshot did not write
stays.`,
		Example: `  refract snapshot fleet --hub-kubeconfig hub.kubeconfig`,
		Args:    oneName("folder"),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args[0]) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.hub, "hub-kubeconfig", "", "kubeconfig `file` of the hub")
	f.BoolVar(&o.secrets, "secrets", false, "write the values of Secrets, too")
	must(cmd.MarkFlagFilename("hub-kubeconfig"))
	return cmd
}

func (o *snapshotOptions) run(ctx context.Context, s *streams, dir string) error {
	if o.hub == "" {
		return withHint(errors.New("no hub is named"), "--hub-kubeconfig names the kubeconfig of one")
	}
	contents, err := hubContents(ctx, o.hub)
	if err != nil {
		return err
	}
	objects := make([]map[string]any, len(contents.Objects))
	masked := 0
	for i, u := range contents.Objects {
		objects[i] = kept(u)
		if u.GetKind() == "Secret" && u.GetAPIVersion() == "v1" && !o.secrets {
			objects[i] = withoutValues(objects[i])
			masked++
		}
	}
	files, err := render.FilesOf(objects)
	if err != nil {
		return err
	}
	done, err := render.WriteDir(dir, files, true)
	if err != nil {
		return fmt.Errorf("writing to %s: %w", dir, err)
	}
	for _, name := range done.Removed {
		fmt.Fprintf(s.err, "removed %s\n", filepath.Join(dir, filepath.FromSlash(name)))
	}
	if masked > 0 {
		fmt.Fprintf(s.err, "%s without values; --secrets writes them\n", render.Count(masked, "Secret is", "Secrets are"))
	}
	fmt.Fprintf(s.err, "%s in %s: %d written, %d unchanged, %d removed\n",
		render.Count(len(files), "file", "files"), dir, len(done.Written), done.Unchanged, len(done.Removed))
	return nil
}

// kept is what matters of an object of the hub: not what changes all the time, and
// status only where it says where things are.
func kept(u *unstructured.Unstructured) map[string]any {
	object := maps.Clone(u.Object)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(metadata)
		for _, key := range []string{"managedFields", "resourceVersion", "selfLink"} {
			delete(metadata, key)
		}
		if annotations, ok := metadata["annotations"].(map[string]any); ok {
			annotations = maps.Clone(annotations)
			delete(annotations, corev1.LastAppliedConfigAnnotation) // It repeats all, Secrets included.
			metadata["annotations"] = annotations
		}
		object["metadata"] = metadata
	}
	switch u.GetKind() {
	case "FederatedCluster", "Propagation", "ClusterPropagation":
	default:
		delete(object, "status")
	}
	return object
}

// withoutValues returns a Secret with stand-ins for its values. It stays valid.
func withoutValues(secret map[string]any) map[string]any {
	data, ok := secret["data"].(map[string]any)
	if !ok {
		return secret
	}
	stand := base64.StdEncoding.EncodeToString([]byte("left out of the snapshot"))
	data = maps.Clone(data)
	for key := range data {
		data[key] = stand
	}
	secret = maps.Clone(secret)
	secret["data"] = data
	return secret
}
