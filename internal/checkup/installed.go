package checkup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"refract.dev/config"
	"refract.dev/fleet/member"
	"refract.dev/internal/installation"
)

var crdKind = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}

// installed compares the installed parts with the expected ones. It also searches for objects that remain of a removed
// part.
func (c *checker) installed(ctx context.Context) {
	left, err := installation.Left(ctx, c.client, c.Namespace, c.found)
	if err != nil {
		c.wrongf("installed", "", "%v", err)
		return
	}
	for _, part := range c.Parts {
		if !slices.Contains(c.run, part) {
			c.wrongf("installed", "refract install --"+part.Name, "deployment %s/%s does not exist: no %s", c.Namespace, part.Deployment, part.Name)
		}
	}
	if len(c.run) == 0 && len(c.Parts) == 0 {
		c.wrongf("installed", "refract install, or --system-namespace if it is in another one", "Refract is not installed in namespace %s", c.Namespace)
	}
	if len(c.found) > 0 {
		c.rightf("installed", "%s, in namespace %s", namesOf(c.found), c.Namespace)
	}
	if elsewhere := c.run[len(c.found):]; len(elsewhere) > 0 {
		c.rightf("installed", "%s, by a program outside of the cluster", namesOf(elsewhere))
	}
	if len(left) > 0 {
		c.wrongf("left", "refract uninstall removes it; refract install repairs it",
			"a removed installation has left %s", some(left))
	}
}

func namesOf(parts []installation.Part) string {
	names := make([]string, len(parts))
	for i := range parts {
		names[i] = parts[i].Name
	}
	return strings.Join(names, ", ")
}

// deployments checks whether the Deployments of the parts are ready.
func (c *checker) deployments(ctx context.Context) {
	for _, part := range c.found {
		d := &appsv1.Deployment{}
		if err := c.client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: part.Deployment}, d); err != nil {
			c.wrongf("deployment", "", "deployment %s/%s cannot be read: %v", c.Namespace, part.Deployment, err)
			continue
		}
		ready, line := installation.Standing(d)
		if ready {
			c.rightf("deployment", "%s, image %s", line, d.Spec.Template.Spec.Containers[0].Image)
			continue
		}
		if why := installation.Stuck(ctx, c.client, c.Namespace, part); why != "" {
			line += ": " + why
		}
		c.wrongf("deployment", fmt.Sprintf("kubectl describe deployment,pods -n %s -l app.kubernetes.io/name=%s", c.Namespace, part.Deployment), "%s", line)
	}
}

// definitionsOf returns the files of the CustomResourceDefinitions that a part maintains.
func definitionsOf(part installation.Part) ([]string, error) {
	switch part {
	case installation.Injection:
		return []string{"crd/refract.dev_serviceinjectionpolicies.yaml"}, nil
	case installation.Conversion:
		return []string{"crd/refract.dev_conversionpolicies.yaml"}, nil
	default:
		return fs.Glob(config.CRDs, "crd/*.yaml")
	}
}

// definitions checks whether the CustomResourceDefinitions are served, and are equal to those in this version of the
// program.
func (c *checker) definitions(ctx context.Context) {
	seen := map[string]bool{}
	var bad []string
	for _, part := range c.run {
		files, err := definitionsOf(part)
		if err != nil {
			c.wrongf("types", "", "%v", err)
			return
		}
		for _, file := range files {
			if seen[file] {
				continue
			}
			seen[file] = true
			if why := c.definition(ctx, file); why != "" {
				bad = append(bad, why)
			}
		}
	}
	switch {
	case len(bad) > 0:
		c.wrongf("types", "refract run writes them at its start: install the image of this program (refract install), and check its log",
			"%s", some(bad))
	case len(seen) > 0:
		c.rightf("types", "%d CustomResourceDefinitions are served", len(seen))
	}
}

// definition returns the error about a CustomResourceDefinition; empty if it is correct.
func (c *checker) definition(ctx context.Context, file string) string {
	text, err := fs.ReadFile(config.CRDs, file)
	want := &unstructured.Unstructured{}
	if err := errors.Join(err, yaml.Unmarshal(text, &want.Object)); err != nil {
		return err.Error()
	}
	is := &unstructured.Unstructured{}
	is.SetGroupVersionKind(crdKind)
	if err := c.client.Get(ctx, client.ObjectKeyFromObject(want), is); err != nil {
		return fmt.Sprintf("CustomResourceDefinition %s: %v", want.GetName(), err)
	}
	if !established(is) {
		return fmt.Sprintf("CustomResourceDefinition %s is not established", want.GetName())
	}
	after := want.DeepCopy()
	err = c.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(after), client.FieldOwner(member.FieldManager), client.ForceOwnership, client.DryRunAll)
	switch {
	case apierrors.IsForbidden(err):
		return "" // Without the permission to write the object, a comparison by dry run is not possible.
	case err != nil:
		return fmt.Sprintf("CustomResourceDefinition %s: %v", want.GetName(), err)
	case !reflect.DeepEqual(is.Object["spec"], after.Object["spec"]):
		return fmt.Sprintf("CustomResourceDefinition %s is from another version of Refract", want.GetName())
	}
	return ""
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Established" && condition["status"] == "True"
	})
}

// rights checks by access reviews whether the ServiceAccount of each part has all permissions that its roles should
// grant. It skips rules about all types, because an administrator may have narrowed them.
func (c *checker) rights(ctx context.Context) {
	for _, part := range c.found {
		lacking, asked, err := c.lacking(ctx, part)
		account := fmt.Sprintf("system:serviceaccount:%s:%s", c.Namespace, part.Deployment)
		switch {
		case err != nil:
			c.wrongf("rights", "check as a user who may create SubjectAccessReviews", "the rights of %s cannot be checked: %v", account, err)
		case len(lacking) > 0:
			c.wrongf("rights", "refract install writes the roles of this version; extend a narrowed role by hand",
				"%s may not %s", account, some(lacking))
		default:
			c.rightf("rights", "%s has all %d rights of its roles", account, asked)
		}
	}
}

// lacking returns the permissions in the roles of a part that its ServiceAccount does not have.
func (c *checker) lacking(ctx context.Context, part installation.Part) (lacking []string, asked int, err error) {
	objects, err := installation.Objects(&installation.Options{Parts: []installation.Part{part}, Namespace: c.Namespace, Image: "refract"})
	if err != nil {
		return nil, 0, err
	}
	for _, o := range objects {
		if o.GetName() != part.Role || (o.GetKind() != "ClusterRole" && o.GetKind() != "Role") {
			continue
		}
		role := &rbacv1.ClusterRole{} // A Role has the same rules.
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			return nil, 0, err
		}
		for i := range role.Rules {
			for _, right := range rightsOf(&role.Rules[i], o.GetNamespace()) {
				review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
					User: fmt.Sprintf("system:serviceaccount:%s:%s", c.Namespace, part.Deployment), Groups: groupsOf(c.Namespace),
					ResourceAttributes: &right,
				}}
				if err := c.client.Create(ctx, review); err != nil {
					return nil, 0, err
				}
				if asked++; !review.Status.Allowed {
					lacking = append(lacking, describeRight(&right))
				}
			}
		}
	}
	return lacking, asked, nil
}

func groupsOf(namespace string) []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}
}

// rightsOf returns the individual permissions that a rule grants. It skips rules about all types.
func rightsOf(rule *rbacv1.PolicyRule, namespace string) []authorizationv1.ResourceAttributes {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	var rights []authorizationv1.ResourceAttributes
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			if resource == "*" {
				continue
			}
			resource, sub, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				for _, name := range names {
					rights = append(rights, authorizationv1.ResourceAttributes{
						Namespace: namespace, Group: group, Resource: resource, Subresource: sub, Verb: verb, Name: name,
					})
				}
			}
		}
	}
	return rights
}

func describeRight(r *authorizationv1.ResourceAttributes) string {
	text := r.Verb + " " + r.Resource
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	if r.Group != "" {
		text += "." + r.Group
	}
	if r.Name != "" {
		text += " " + r.Name
	}
	if r.Namespace != "" {
		text += " in namespace " + r.Namespace
	}
	return text
}

// admissionPolicies checks that the admission policies exist. They restrict which permissions Refract's accounts can
// grant and which objects they can write.
func (c *checker) admissionPolicies(ctx context.Context) {
	var missing []string
	n := 0
	for _, part := range c.run {
		for _, o := range part.Admission() {
			n++
			if err := c.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				missing = append(missing, err.Error())
			}
		}
	}
	c.installedPolicies(ctx)
	switch {
	case len(missing) > 0:
		c.wrongf("policies", "the leading replica of refract run repairs them within a minute: check its log",
			"the API server does not enforce the admission policies: %s", some(missing))
	case n > 0:
		c.rightf("policies", "the admission policies exist")
	}
}

// installedPolicies searches for the admission policies that are part of the installation. The accounts of Refract
// cannot write these policies.
func (c *checker) installedPolicies(ctx context.Context) {
	if len(c.found) == 0 {
		return
	}
	objects, err := installation.Objects(&installation.Options{Parts: c.found, Namespace: c.Namespace, Image: "refract"})
	if err != nil {
		c.wrongf("policies", "", "%v", err)
		return
	}
	for _, o := range objects {
		if o.GroupVersionKind().Group != admissionregistrationv1.GroupName {
			continue
		}
		if err := c.client.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			c.wrongf("policies", "refract install", "the API server does not restrict the accounts of Refract: %v", err)
		}
	}
}

// conversions searches for CustomResourceDefinitions whose conversion webhook belongs to a part that is not installed.
func (c *checker) conversions(ctx context.Context) {
	wired, err := installation.Wired(ctx, c.client, c.Namespace)
	if err != nil {
		c.wrongf("conversion", "", "%v", err)
		return
	}
	var bad []string
	for i := range wired {
		part := slices.IndexFunc(c.found, func(p installation.Part) bool { return p.Deployment == wired[i].Service })
		if part < 0 {
			bad = append(bad, fmt.Sprintf("%s (service %s/%s)", wired[i].Name, c.Namespace, wired[i].Service))
		}
	}
	switch {
	case len(bad) > 0:
		c.wrongf("conversion",
			"refract install --conversion converts them again; refract uninstall --unwire removes the conversion webhook where no values are lost",
			"objects cannot be read in versions other than the stored one, as no webhook answers the API server: %s", some(bad))
	case len(wired) > 0:
		c.rightf("conversion", "%d CustomResourceDefinitions are converted", len(wired))
	}
}
