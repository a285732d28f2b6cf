package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
	kpem []byte
}

// pkiMain makes every key, certificate and kubeconfig of a cluster in a
// directory: kube pki -dir DIR -server https://IP:PORT -san IP,NAME -node NAME=IP...
// What is there already is kept, so that a node can be added later.
func pkiMain(args []string) error {
	flags := flag.NewFlagSet("pki", flag.ExitOnError)
	dir := flags.String("dir", "", "directory to write to")
	server := flags.String("server", "", "address of the API server for the kubeconfigs")
	sans := flags.String("san", "", "names and addresses of the API server, by commas")
	nodes := flags.String("nodes", "", "nodes as NAME=IP, by commas")
	name := flags.String("name", "forebay", "name of the cluster and of the admin's context")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" || *server == "" {
		return errors.New("-dir and -server are needed")
	}
	if err := os.MkdirAll(*dir, 0o700); err != nil {
		return err
	}
	ca, err := ensure(*dir, "ca", nil, nil)
	if err != nil {
		return err
	}
	frontCA, err := ensure(*dir, "front-proxy-ca", nil, nil)
	if err != nil {
		return err
	}
	if _, err := ensure(*dir, "front-proxy-client", frontCA, subject("front-proxy-client", "")); err != nil {
		return err
	}
	if _, err := ensure(*dir, "apiserver", ca, serving("kube-apiserver", *sans)); err != nil {
		return err
	}
	if _, err := ensure(*dir, "apiserver-kubelet-client", ca, subject("kube-apiserver-kubelet-client", "system:masters")); err != nil {
		return err
	}
	if _, err := ensure(*dir, "sa", nil, nil); err != nil { // only its key pair is used
		return err
	}
	clients := map[string]*x509.Certificate{
		"admin":              subject("kubernetes-admin", "system:masters"),
		"controller-manager": subject("system:kube-controller-manager", ""),
		"scheduler":          subject("system:kube-scheduler", ""),
		"proxy":              subject("system:kube-proxy", "system:node-proxier"),
		"dns":                subject("forebay:dns", "system:masters"),
		"provisioner":        subject("forebay:provisioner", "system:masters"),
	}
	for _, node := range strings.FieldsFunc(*nodes, func(r rune) bool { return r == ',' }) {
		host, ip, ok := strings.Cut(node, "=")
		if !ok {
			return fmt.Errorf("node %q is not NAME=IP", node)
		}
		clients["kubelet-"+host] = subject("system:node:"+host, "system:nodes")
		if _, err := ensure(*dir, "kubelet-serving-"+host, ca, serving("system:node:"+host, host+","+ip)); err != nil {
			return err
		}
	}
	for client, template := range clients {
		p, err := ensure(*dir, client, ca, template)
		if err != nil {
			return err
		}
		config := clientcmdapi.NewConfig()
		config.Clusters[*name] = &clientcmdapi.Cluster{Server: *server, CertificateAuthorityData: ca.pem}
		config.AuthInfos[client] = &clientcmdapi.AuthInfo{ClientCertificateData: p.pem, ClientKeyData: p.kpem}
		config.Contexts[*name] = &clientcmdapi.Context{Cluster: *name, AuthInfo: client}
		config.CurrentContext = *name
		if err := clientcmd.WriteToFile(*config, filepath.Join(*dir, client+".kubeconfig")); err != nil {
			return err
		}
	}
	return nil
}

// subject is the template of a client's certificate.
func subject(user, group string) *x509.Certificate {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: user},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if group != "" {
		t.Subject.Organization = []string{group}
	}
	return t
}

// serving is the template of a server's certificate.
func serving(name, sans string) *x509.Certificate {
	t := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, san := range strings.Split(sans, ",") {
		if ip := net.ParseIP(san); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, san)
		}
	}
	return t
}

// ensure reads a pair from its files, or makes it: signed by the given issuer,
// or an authority of its own where there is none.
func ensure(dir, name string, issuer *pair, template *x509.Certificate) (*pair, error) {
	certFile, keyFile := filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	if p, err := load(certFile, keyFile); err == nil {
		return p, nil
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if template == nil {
		template = &x509.Certificate{
			Subject:               pkix.Name{CommonName: name},
			KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			BasicConstraintsValid: true,
			IsCA:                  true,
		}
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, err
	}
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().AddDate(1, 0, 0)
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.cert, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	pubDER, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, err
	}
	for file, block := range map[string]*pem.Block{
		keyFile:                         {Type: "EC PRIVATE KEY", Bytes: keyDER},
		certFile:                        {Type: "CERTIFICATE", Bytes: der},
		filepath.Join(dir, name+".pub"): {Type: "PUBLIC KEY", Bytes: pubDER},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, err
		}
	}
	return load(certFile, keyFile)
}

func load(certFile, keyFile string) (*pair, error) {
	certPEM, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	keyPEM, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, err
	}
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, fmt.Errorf("%s or its key is not PEM", certFile)
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	return &pair{cert: cert, key: key, pem: certPEM, kpem: keyPEM}, nil
}
