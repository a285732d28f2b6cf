package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// mkimageMain packs a directory as a one-layer image in a docker archive, with
// no daemon and no base image: kube mkimage -t NAME:TAG -o FILE DIR [COMMAND...].
func mkimageMain(args []string) error {
	flags := flag.NewFlagSet("mkimage", flag.ExitOnError)
	tag := flags.String("t", "", "name:tag of the image")
	out := flags.String("o", "", "docker archive to write")
	user := flags.String("u", "", "user (uid[:gid]) that the image runs as")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *tag == "" || *out == "" || flags.NArg() < 1 {
		return errors.New("usage: mkimage -t NAME:TAG -o FILE [-u UID[:GID]] DIR [COMMAND...]")
	}
	layer, err := packDir(flags.Arg(0))
	if err != nil {
		return err
	}
	diffID := fmt.Sprintf("%x", sha256.Sum256(layer))
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config": map[string]any{
			"User":       *user,
			"Entrypoint": flags.Args()[1:],
			"Env":        []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + diffID}},
		"history": []map[string]any{{"created_by": "kube mkimage"}},
	})
	if err != nil {
		return err
	}
	configName := fmt.Sprintf("%x.json", sha256.Sum256(config))
	manifest, err := json.Marshal([]map[string]any{{
		"Config":   configName,
		"RepoTags": []string{*tag},
		"Layers":   []string{diffID + "/layer.tar"},
	}})
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range []struct {
		name string
		data []byte
	}{{configName, config}, {diffID + "/layer.tar", layer}, {"manifest.json", manifest}} {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data))}); err != nil {
			return err
		}
		if _, err := w.Write(f.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(*out, archive.Bytes(), 0o644)
}

// packDir makes a tar of a directory's content, owned by root and undated so
// that the same content always gives the same image.
func packDir(dir string) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		link := ""
		if info.Mode()&fs.ModeSymlink != 0 {
			if link, err = os.Readlink(path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		*header = tar.Header{
			Typeflag: header.Typeflag, Name: name, Linkname: link, Mode: header.Mode, Size: header.Size,
		}
		if info.IsDir() {
			header.Name = strings.TrimSuffix(name, "/") + "/"
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		_, err = io.Copy(w, file)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
