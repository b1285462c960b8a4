package playground

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// nodes are the names of the fake Nodes of a member.
var nodes = []string{"node-1", "node-2"}

// addNodes creates the Nodes. kwok makes them ready.
func addNodes(ctx context.Context, client kubernetes.Interface) error {
	for _, name := range nodes {
		if _, err := client.CoreV1().Nodes().Create(ctx, fakeNode(name), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating the Node %q: %w", name, err)
		}
	}
	return nil
}

// fakeNode returns a Node with more resources than any workload needs.
func fakeNode(name string) *corev1.Node {
	room := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("64"),
		corev1.ResourceMemory:           resource.MustParse("256Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		corev1.ResourcePods:             resource.MustParse("1000"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			Labels: map[string]string{
				corev1.LabelHostname:   name,
				corev1.LabelArchStable: "amd64",
				corev1.LabelOSStable:   "linux",
			},
		},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
}

// awaitNodes waits until Pods can be scheduled to each Node.
func awaitNodes(ctx context.Context, client kubernetes.Interface) error {
	return await(ctx, func(ctx context.Context) error {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			if n := &list.Items[i]; !schedulable(n) {
				return fmt.Errorf("the Node %q is not ready", n.Name)
			}
		}
		return nil
	})
}

// schedulable reports whether the Node is ready and the controllers have removed its taints.
func schedulable(n *corev1.Node) bool {
	ready := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	return len(n.Spec.Taints) == 0 && slices.ContainsFunc(n.Status.Conditions, ready)
}

// awaitServiceAccount waits until a new cluster has its default service account. Before that, Pods cannot be created.
func awaitServiceAccount(ctx context.Context, client kubernetes.Interface) error {
	return await(ctx, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}
