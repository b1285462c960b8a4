package hub

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"refract.dev/config"
	"refract.dev/fleet/member"
	"refract.dev/internal/owner"
)

// ErrNoAdmissionPolicies is returned for a cluster whose API server lacks ValidatingAdmissionPolicies, or one of their
// features that Refract's policies use.
var ErrNoAdmissionPolicies = errors.New("the API server does not support Refract's admission policies: it must be Kubernetes 1.35 or later")

// InstallAdmission writes Refract's ValidatingAdmissionPolicies and their bindings to the hub, by server-side apply.
// The API server enforces them a moment later. From then on, only the user of cfg may write the authorized references
// in the status of override policies. A hub with injection into its own pods needs [InstallServiceAdmission] as well.
//
// Trusted users may write Services that hand out content which these users may not read themselves. The names of
// trusted users are those of the API server, such as system:serviceaccount:NAMESPACE:NAME for a service account. The
// written objects belong to the installations that owners finds, and are deleted with the last of these.
func InstallAdmission(ctx context.Context, cfg *rest.Config, owners *owner.Owners, trusted ...string) error {
	own, err := userOf(ctx, cfg)
	if err != nil {
		return err
	}
	return installAdmission(ctx, cfg, owners, hubAdmission, map[string][]string{trustedVariable: trusted, ownVariable: {own}})
}

// InstallServiceAdmission is [InstallAdmission] for a cluster with injection into its pods. These policies protect the
// annotations of Services that a ServiceInjectionPolicy gives to pods of this cluster, and the status of the policies,
// which has the result. Only the user of cfg may write that status.
func InstallServiceAdmission(ctx context.Context, cfg *rest.Config, owners *owner.Owners, trusted ...string) error {
	own, err := userOf(ctx, cfg)
	if err != nil {
		return err
	}
	return installAdmission(ctx, cfg, owners, serviceAdmission, map[string][]string{trustedVariable: trusted, ownVariable: {own}})
}

// InstallConversionAdmission is [InstallAdmission] for a cluster whose custom resources are converted. These policies
// deny changes of custom resources that were converted incompletely. They also deny the deletion of the objects in the
// system namespace that converters need.
func InstallConversionAdmission(ctx context.Context, cfg *rest.Config, owners *owner.Owners, systemNamespace string) error {
	return installAdmission(ctx, cfg, owners, conversionAdmission, map[string][]string{systemVariable: {systemNamespace}})
}

// admissionFile is a file with admission policies. The roles are those of the installations to which the policies
// belong.
type admissionFile struct {
	path  string
	roles []string
}

var (
	services = admissionFile{"admission/services.yaml", []string{owner.HubRole, owner.InjectionRole}}

	hubAdmission = []admissionFile{
		{"admission/followers.yaml", []string{owner.HubRole}},
		{"admission/named-followers.yaml", []string{owner.HubRole}},
		services,
		{"admission/placements.yaml", []string{owner.HubRole}},
		{"admission/references.yaml", []string{owner.HubRole}},
		{"admission/rollouts.yaml", []string{owner.HubRole}},
		{"admission/tokens.yaml", []string{owner.HubRole}},
	}
	conversionAdmission = []admissionFile{
		{"admission/unconverted.yaml", []string{owner.ConversionRole}},
		{"admission/conversion-in-use.yaml", []string{owner.ConversionRole}},
	}

	serviceAdmission = []admissionFile{services, {"admission/injection-status.yaml", []string{owner.InjectionRole}}}
)

// Names of variables of admission policies. The first two variables have lists of user names. The last one has the
// namespace of Refract.
const (
	trustedVariable = "trusted"
	ownVariable     = "own"
	systemVariable  = "system"
)

// userOf returns the API server's name for the user of cfg.
func userOf(ctx context.Context, cfg *rest.Config) (string, error) {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	review, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("reading the user of the credentials: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

func installAdmission(ctx context.Context, cfg *rest.Config, owners *owner.Owners, files []admissionFile, names map[string][]string) error {
	c, err := Client(cfg)
	if err != nil {
		return err
	}
	for _, file := range files {
		objects, err := admission([]admissionFile{file}, names)
		if err != nil {
			return err
		}
		references, err := owners.References(ctx, file.roles...)
		if err != nil {
			return fmt.Errorf("finding the owners of the admission policies: %w", err)
		}
		for _, o := range objects {
			if err := applyAdmission(ctx, c, o, references); err != nil {
				return err
			}
		}
	}
	return nil
}

func applyAdmission(ctx context.Context, c client.Client, o *unstructured.Unstructured, references []metav1.OwnerReference) error {
	err := owner.Apply(ctx, c, o, references, member.FieldManager)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsInvalid(err):
		return fmt.Errorf("%w: %w", ErrNoAdmissionPolicies, err)
	case err != nil:
		return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return nil
}

// admission returns the objects in files of [config.Admission], policies before their bindings. The argument names has
// the values for each variable of the policies.
func admission(files []admissionFile, names map[string][]string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, file := range files {
		text, err := fs.ReadFile(config.Admission, file.path)
		if err != nil {
			return nil, err
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			o := &unstructured.Unstructured{}
			if err := errors.Join(err, yaml.Unmarshal(document, &o.Object)); err != nil {
				return nil, fmt.Errorf("reading %s: %w", file.path, err)
			}
			if err := name(o, names); err != nil {
				return nil, fmt.Errorf("completing %s: %w", file.path, err)
			}
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// name writes the values in names into the variables of a policy. It ignores variables that the policy does not have.
func name(policy *unstructured.Unstructured, names map[string][]string) error {
	variables, found, err := unstructured.NestedSlice(policy.Object, "spec", "variables")
	if err != nil || !found {
		return err
	}
	for _, v := range variables {
		variable, _ := v.(map[string]any)
		of, _ := variable["name"].(string)
		if these, ok := names[of]; ok {
			variable["expression"] = literal(these)
		}
	}
	return unstructured.SetNestedSlice(policy.Object, variables, "spec", "variables")
}

// literal returns a list of texts in CEL.
func literal(texts []string) string {
	quoted := make([]string, len(texts))
	for i, text := range texts {
		quoted[i] = strconv.Quote(text) // CEL supports all escapes of Go.
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
