package propagation

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/member"
)

var (
	// failedWebhook is how an API server says that an admission webhook gave no answer. A webhook that denies an object says something else.
	failedWebhook = regexp.MustCompile(`^Internal error occurred: failed calling webhook "([^"]{1,253})"`)
	// failedConversion is how it says that a conversion webhook gave none.
	failedConversion = regexp.MustCompile(`^(?:Internal error occurred: )?conversion webhook for `)
	// exceededQuota is how it says that a quota is exhausted, and for what.
	exceededQuota = regexp.MustCompile(`is forbidden: exceeded quota: ([^,]{1,253}), requested: ([^ ]{1,500}), used: `)
)

// sharedFailure returns the failure that an error of a write stands for if other copies share it. It is nil for a failure of this copy
// alone. Creates is whether the copy does not exist yet.
func sharedFailure(key Key, gvr schema.GroupVersionResource, creates bool, err error) *failure {
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return nil
	}
	status := said.Status()
	ofType := gateScope{resource: key.WithVersion(""), namespace: key.Namespace}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return namespaceFailure(key.Namespace, reasonBeingDeleted, fmt.Sprintf("namespace %s is being deleted on the cluster", key.Namespace),
			"The copies are written when it is gone. Its status says which finalizers hold it")
	case status.Code == http.StatusNotFound && !strings.HasPrefix(status.Message, "admission webhook"), status.Code == http.StatusMethodNotAllowed:
		return unservedFailure(gvr)
	case status.Code == http.StatusForbidden:
		return forbiddenFailure(ofType, key, creates, err)
	case status.Code != http.StatusInternalServerError:
		return nil
	}
	if name := failedWebhook.FindStringSubmatch(status.Message); name != nil {
		return &failure{
			gateID{reason: reasonWebhookFailed, gateScope: ofType, name: name[1]},
			"webhook " + name[1] + " of the cluster fails: " + status.Message, "Repair or remove the webhook on the cluster",
		}
	}
	if failedConversion.MatchString(status.Message) {
		return &failure{
			gateID{reason: reasonWebhookFailed, gateScope: ofType, name: "conversion of " + key.GroupResource.String()},
			"the cluster cannot convert the type: " + status.Message, "Repair the conversion webhook of the CustomResourceDefinition on the cluster",
		}
	}
	return nil
}

// sizeFailure returns the failure of a copy that the API server has found too large. Nil is for one that others of its size do not share: it was not sent, or a
// webhook has an opinion of it that is not small.
func sizeFailure(key Key, size int, err error) *failure {
	if size <= largeBody || !member.IsTooLarge(err) || errors.As(err, new(*member.SizeError)) {
		return nil
	}
	return &failure{
		gateID{reason: reasonRejected, gateScope: gateScope{resource: key.WithVersion(""), namespace: key.Namespace}, name: "size of a request", large: true},
		fmt.Sprintf("the cluster does not store %d bytes: %s", size, err), "Make the objects smaller, or have the etcd of the cluster take larger requests",
	}
}

// unservedFailure is that a member does not serve a version of a type. It names no object: it is told in all namespaces.
func unservedFailure(gvr schema.GroupVersionResource) *failure {
	return &failure{
		gateID{reason: reasonTypeNotServed, gateScope: gateScope{resource: gvr}},
		fmt.Sprintf("the cluster does not serve %s in version %s", gvr.GroupResource(), gvr.Version),
		"Install the type on the cluster, or place the objects elsewhere",
	}
}

// namespaceFailure is that nothing can be created in a namespace. What exists there can be changed.
func namespaceFailure(namespace, reason, what, remedy string) *failure {
	return &failure{gateID{reason: reason, gateScope: gateScope{namespace: namespace}, creations: true}, what, remedy}
}

// forbiddenFailure is that a right is missing for a type in a namespace, or that a quota allows no more objects of the type there. A quota
// of something else, as of storage, may have room for a smaller object: it is a failure of the copy alone. The same is true of all that
// policies and admission plugins refuse.
func forbiddenFailure(ofType gateScope, key Key, creates bool, err error) *failure {
	if verb, missing := member.MissingRight(err); missing {
		return &failure{
			gateID{reason: reasonRejected, gateScope: ofType, creations: verb == "create"},
			fmt.Sprintf("the credentials may not %s %s in namespace %q", verb, key.GroupResource, key.Namespace),
			"Grant the right on the cluster; the condition Authorized of the FederatedCluster names it",
		}
	}
	quota := exceededQuota.FindStringSubmatch(err.Error())
	if quota == nil || !creates {
		return nil
	}
	for amount := range strings.SplitSeq(quota[2], ",") {
		if amount != key.Resource+"=1" && amount != "count/"+key.GroupResource.String()+"=1" {
			return nil
		}
	}
	return &failure{
		gateID{reason: reasonRejected, gateScope: ofType, name: "quota " + quota[1], creations: true},
		fmt.Sprintf("quota %s of namespace %s on the cluster allows no more %s", quota[1], key.Namespace, key.GroupResource),
		"Raise the quota on the cluster, or delete objects there",
	}
}
